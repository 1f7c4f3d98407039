// layer_norm: y = (x - mean) * rstd * weight + bias, with the mean and 1 / deviation of each row
//
//   x, y, g, dx [rows, cols] T          weight, bias, dweight, dbias [cols] T
//   mean, rstd [rows] float             partials [count, cols] float    (double for double)
//   g: the gradient that arrives; dx, dweight, dbias: the gradients that leave
//
// Traffic, the least a kernel can move: forward reads x and writes y, 2 * sizeof(T) bytes per
// element; backward reads g and x and writes dx, 3 * sizeof(T). What is per row or per column is
// small beside it.
//
// With xhat = (x - mean) * rstd and h = g * weight, backward is
//   dx = rstd * (h - average of h - xhat * average of h * xhat)      averages over the row
//   dweight = sum of g * xhat, dbias = sum of g                      sums over the rows

#include "async.cuh"
#include "reduce.cuh"

// Elements per access. double, which is here for checks of gradients, does without vectors and
// without the vector version: a warp of doubles fills whole lines of memory anyway, and every
// kernel more takes time to compile.
template <class T>
constexpr int kAccess = sizeof(T) == 8 ? 1 : kVec<T>;

// h = g * weight, rounded before it goes on. Were it fused with the subtraction of its average, a
// row of equal h would get a gradient other than 0: the rounding error, times a rstd that may be
// large.
__device__ inline float product(float g, float weight) { return __fmul_rn(g, weight); }
__device__ inline double product(double g, double weight) { return __dmul_rn(g, weight); }

// A sum of many numbers, and so a mean, is off by several roundings. Forward takes its first mean
// as rough: with d = x - rough_mean, the average of d is what the mean has lost, and this the
// variance.
template <class A>
__device__ A variance(A d_average, A d_square_average) {
    const A value = d_square_average - d_average * d_average;
    return value < 0 ? A(0) : value;
}

// ---- naive: one thread per row, and for dweight and dbias one thread per column.
// Flaw: neighbouring threads read cols apart, and rows or cols threads cannot fill a GPU.
// (unroll 1: loops left rolled compile faster, and nothing here is about speed.)

template <class T>
__global__ void forward_naive(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                              Acc<T>* rstd, int64_t rows, int64_t cols, Acc<T> eps) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * cols;
    y += row * cols;
    LongSum<A> sum, d_sum, d_square;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) sum += A(x[c]);
    const A rough_mean = sum.value / cols;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) {
        const A d = A(x[c]) - rough_mean;
        d_sum += d;
        d_square += d * d;
    }
    const A d_average = d_sum.value / cols;
    const A m = rough_mean + d_average;
    const A r = 1 / sqrt(variance(d_average, d_square.value / cols) + eps);
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) y[c] = T((A(x[c]) - m) * r * A(weight[c]) + A(bias[c]));
    mean[row] = m;
    rstd[row] = r;
}

template <class T>
__global__ void dx_naive(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                         const Acc<T>* rstd, T* dx, int64_t rows, int64_t cols) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    g += row * cols;
    x += row * cols;
    dx += row * cols;
    const A m = mean[row], r = rstd[row];
    LongSum<A> h_sum, h_xhat_sum;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) {
        const A h = product(A(g[c]), A(weight[c])), xhat = (A(x[c]) - m) * r;
        h_sum += h;
        h_xhat_sum += h * xhat;
    }
    const A h_average = h_sum.value / cols, h_xhat_average = h_xhat_sum.value / cols;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) {
        const A h = product(A(g[c]), A(weight[c])), xhat = (A(x[c]) - m) * r;
        dx[c] = T(r * (h - h_average - xhat * h_xhat_average));
    }
}

template <class T>
__global__ void columns_naive(const T* g, const T* x, const Acc<T>* mean, const Acc<T>* rstd,
                              T* dweight, T* dbias, int64_t rows, int64_t cols) {
    using A = Acc<T>;
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    LongSum<A> weight_sum, bias_sum;
#pragma unroll 1
    for (int64_t row = 0; row < rows; ++row) {
        const A d = A(g[row * cols + c]);
        weight_sum += d * ((A(x[row * cols + c]) - mean[row]) * rstd[row]);
        bias_sum += d;
    }
    dweight[c] = T(weight_sum.value);
    dbias[c] = T(bias_sum.value);
}

// ---- block: one block per row; neighbouring threads read neighbours, and the block adds up its
// threads' sums. For dweight and dbias a thread takes V columns of a slice of the rows, and a
// second pass adds up the slices. V is 1 here; the next version, where a row is too wide for it,
// takes these kernels with V = kAccess.
// Flaw: forward reads each row three times, backward twice and once more for the columns.

template <class T, int V>
__global__ void forward_block(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                              Acc<T>* rstd, int64_t rows, int64_t cols, Acc<T> eps) {
    using A = Acc<T>;
    const int64_t first = threadIdx.x * V, step = blockDim.x * V;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const T* in = x + row * cols;
        T* out = y + row * cols;
        A sum[1] = {0}, d_sums[2] = {0, 0};  // of x; of d = x - rough_mean and of d * d
        for (int64_t c = first; c < cols; c += step) {
            const Vec<T, V> v = load<V>(in + c);
            for (int k = 0; k < V; ++k) sum[0] += A(v[k]);
        }
        row_sum(sum, turn);
        const A rough_mean = sum[0] / cols;
        for (int64_t c = first; c < cols; c += step) {
            const Vec<T, V> v = load<V>(in + c);
            for (int k = 0; k < V; ++k) {
                const A d = A(v[k]) - rough_mean;
                d_sums[0] += d;
                d_sums[1] += d * d;
            }
        }
        row_sum(d_sums, turn);
        const A d_average = d_sums[0] / cols;
        const A m = rough_mean + d_average;
        const A r = 1 / sqrt(variance(d_average, d_sums[1] / cols) + eps);
        for (int64_t c = first; c < cols; c += step) {
            Vec<T, V> v = load<V>(in + c);
            const Vec<T, V> w = load<V>(weight + c), b = load<V>(bias + c);
            for (int k = 0; k < V; ++k) v[k] = T((A(v[k]) - m) * r * A(w[k]) + A(b[k]));
            store(out + c, v);
        }
        if (threadIdx.x == 0) mean[row] = m, rstd[row] = r;
    }
}

template <class T, int V>
__global__ void dx_block(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                         const Acc<T>* rstd, T* dx, int64_t rows, int64_t cols) {
    using A = Acc<T>;
    const int64_t first = threadIdx.x * V, step = blockDim.x * V;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const A m = mean[row], r = rstd[row];
        A sums[2] = {0, 0};  // of h, of h * xhat
        for (int64_t c = first; c < cols; c += step) {
            const Vec<T, V> u = load<V>(g + row * cols + c), v = load<V>(x + row * cols + c);
            const Vec<T, V> w = load<V>(weight + c);
            for (int k = 0; k < V; ++k) {
                const A h = product(A(u[k]), A(w[k]));
                sums[0] += h;
                sums[1] += h * ((A(v[k]) - m) * r);
            }
        }
        row_sum(sums, turn);
        const A h_average = sums[0] / cols, h_xhat_average = sums[1] / cols;
        for (int64_t c = first; c < cols; c += step) {
            const Vec<T, V> u = load<V>(g + row * cols + c), w = load<V>(weight + c);
            Vec<T, V> v = load<V>(x + row * cols + c);
            for (int k = 0; k < V; ++k) {
                const A h = product(A(u[k]), A(w[k])), xhat = (A(v[k]) - m) * r;
                v[k] = T(r * (h - h_average - xhat * h_xhat_average));
            }
            store(dx + row * cols + c, v);
        }
    }
}

template <class T, int V>
__global__ void columns_block(const T* g, const T* x, const Acc<T>* mean, const Acc<T>* rstd,
                              Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows,
                              int64_t cols) {
    using A = Acc<T>;
    const int64_t c = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (c >= cols) return;
    const int64_t slice = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t slices = int64_t(gridDim.y) * blockDim.y;
    A weight_sum[V] = {}, bias_sum[V] = {};
#pragma unroll 4
    for (int64_t row = slice; row < rows; row += slices) {
        const Vec<T, V> u = load<V>(g + row * cols + c), v = load<V>(x + row * cols + c);
        const A m = mean[row], r = rstd[row];
        for (int k = 0; k < V; ++k) {
            weight_sum[k] += A(u[k]) * ((A(v[k]) - m) * r);
            bias_sum[k] += A(u[k]);
        }
    }
    for (int k = 0; k < V; ++k) {
        partial_dweight[slice * cols + c + k] = weight_sum[k];
        partial_dbias[slice * cols + c + k] = bias_sum[k];
    }
}

// ---- vector: a thread keeps its part of the row, N vectors of 16 bytes, in registers, so that
// memory is read once: forward takes the mean and then the deviations from it out of registers.
// Backward also keeps the weights, and the sums of its columns over all rows that the block takes.
// For the next row it has no registers left, so that one is on its way to shared memory meanwhile.
// Flaw: a row that does not fit, or is no multiple of the vector wide, goes back to block.

// Of a thread. The simulator, to which a barrier is dear, keeps a row within one warp.
constexpr int kForwardVectors = PLAYGROUND_CUDA ? 4 : 32;

// one_nth: 1 / cols, so that no thread divides. Rounding it costs nothing: the first mean is rough.
template <class T>
__global__ __launch_bounds__(1024) void forward_vector(const T* x, const T* weight, const T* bias,
                                                       T* y, Acc<T>* mean, Acc<T>* rstd,
                                                       int64_t rows, int cols, Acc<T> one_nth,
                                                       Acc<T> eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kForwardVectors;
    const int64_t step = int64_t(gridDim.x) * blockDim.y;
    for (int64_t first = int64_t(blockIdx.x) * blockDim.y; first < rows; first += step) {
        const int64_t row = first + threadIdx.y;
        const int end = row < rows ? cols : 0;  // past the last row there is nothing to do
        Vec<T, V> v[N];
        A sum[1] = {0}, d_sums[2] = {0, 0};  // of x; of d = x - rough_mean and of d * d
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = (n * blockDim.x + threadIdx.x) * V;
            if (c < end) v[n] = load<V>(x + row * cols + c);
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = (n * blockDim.x + threadIdx.x) * V;
            if (c >= end) break;
            for (int k = 0; k < V; ++k) sum[0] += A(v[n][k]);
        }
        row_sum(sum, 0);
        const A rough_mean = sum[0] * one_nth;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = (n * blockDim.x + threadIdx.x) * V;
            if (c >= end) break;
            for (int k = 0; k < V; ++k) {
                const A d = A(v[n][k]) - rough_mean;
                d_sums[0] += d;
                d_sums[1] += d * d;
            }
        }
        row_sum(d_sums, 1);
        const A d_average = d_sums[0] * one_nth;
        const A m = rough_mean + d_average;
        const A r = 1 / sqrt(variance(d_average, d_sums[1] * one_nth) + eps);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = (n * blockDim.x + threadIdx.x) * V;
            if (c >= end) break;
            const Vec<T, V> w = load<V>(weight + c), b = load<V>(bias + c);
            for (int k = 0; k < V; ++k) v[n][k] = T((A(v[n][k]) - m) * r * A(w[k]) + A(b[k]));
            store(y + row * cols + c, v[n]);
        }
        if (threadIdx.x == 0 && row < rows) mean[row] = m, rstd[row] = r;
    }
}

constexpr int kBackwardThreads = 512;  // of a multiprocessor: 128 registers each, all it has
template <class T>
constexpr int kBackwardVectors = sizeof(T) == 2 ? 2 : 4;  // of a thread: 16 columns

// The block's parts of the row at work and of the next one.
extern __shared__ Vec<char, kVecBytes> on_the_way[];

// What a thread of backward has of one row.
template <class T>
struct Part {
    Vec<T, kVec<T>> g, x;
};

template <class T>
__global__ __launch_bounds__(kBackwardThreads) void backward_vector(
    const T* g, const T* x, const T* weight, const Acc<T>* mean, const Acc<T>* rstd, T* dx,
    Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows, int cols, Acc<T> one_nth) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>;
    const int threads = blockDim.x * blockDim.y;
    // Part n of the row that comes in an even (0) or odd (1) turn. Neighbours' vectors are
    // neighbours.
    const auto g_at = [&](int turn, int n) {
        return reinterpret_cast<Vec<T, V>*>(on_the_way) + ((turn * N + n) * 2) * threads +
               threadIdx.y * blockDim.x + threadIdx.x;
    };
    const auto x_at = [&](int turn, int n) { return g_at(turn, n) + threads; };
    const auto fetch = [&](int64_t row, int turn) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = (n * blockDim.x + threadIdx.x) * V;
            if (row >= rows || c >= cols) break;
            copy_async<V>(g_at(turn, n)->at, g + row * cols + c);
            copy_async<V>(x_at(turn, n)->at, x + row * cols + c);
        }
        close_batch();
    };

    const int64_t slice = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const int64_t slices = int64_t(gridDim.x) * blockDim.y;
    A weight_sum[N][V] = {}, bias_sum[N][V] = {};
    Vec<T, V> w[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = (n * blockDim.x + threadIdx.x) * V;
        if (c < cols) w[n] = load<V>(weight + c);
    }
    A next_m = slice < rows ? mean[slice] : A(0), next_r = slice < rows ? rstd[slice] : A(0);
    fetch(slice, 0);
    int turn = 0;
    for (int64_t row = slice; row - threadIdx.y < rows; row += slices, turn ^= 1) {
        const int end = row < rows ? cols : 0;  // past the last row there is nothing to do
        const int64_t next = row + slices;
        const A m = next_m, r = next_r;
        next_m = next < rows ? mean[next] : A(0);
        next_r = next < rows ? rstd[next] : A(0);
        fetch(next, turn ^ 1);
        await_batches<1>();  // the next row may still be on its way
        Part<T> part[N];
        A sums[2] = {0, 0};  // of h, of h * xhat
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = (n * blockDim.x + threadIdx.x) * V;
            if (c >= end) break;
            part[n] = {*g_at(turn, n), *x_at(turn, n)};
            for (int k = 0; k < V; ++k) {
                const A d = A(part[n].g[k]), xhat = (A(part[n].x[k]) - m) * r;
                weight_sum[n][k] += d * xhat;
                bias_sum[n][k] += d;
                const A h = product(d, A(w[n][k]));
                sums[0] += h;
                sums[1] += h * xhat;
            }
        }
        row_sum(sums, turn);
        const A h_average = sums[0] * one_nth, h_xhat_average = sums[1] * one_nth;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = (n * blockDim.x + threadIdx.x) * V;
            if (c >= end) break;
            Vec<T, V> out;
            for (int k = 0; k < V; ++k) {
                const A h = product(A(part[n].g[k]), A(w[n][k]));
                const A xhat = (A(part[n].x[k]) - m) * r;
                out[k] = T(r * (h - h_average - xhat * h_xhat_average));
            }
            store(dx + row * cols + c, out);
        }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = (n * blockDim.x + threadIdx.x) * V;
        if (c >= cols) break;
        for (int k = 0; k < V; ++k) {
            partial_dweight[slice * cols + c + k] = weight_sum[n][k];
            partial_dbias[slice * cols + c + k] = bias_sum[n][k];
        }
    }
}

// ---- launch choices: the first row of a table whose threads hold the whole row of the tensor

struct Shape {
    int threads, rows;  // threads of a row, rows of a block
};
constexpr Shape kForward[] = {
    // columns of a 2-byte type
    {32, 4},    //  1024; one warp, whose sums need no barrier
    {64, 2},    //  2048
    {128, 1},   //  4096
    {256, 1},   //  8192
    {512, 1},   // 16384
    {1024, 1},  // 32768
};
constexpr Shape kBackward[] = {
    // columns of a 2-byte type
    {32, 8},   //  512; a block has 256 threads, so that two hide each other's barriers
    {64, 4},   // 1024
    {128, 2},  // 2048
    {256, 1},  // 4096
    {512, 1},  // 8192; one block fills a multiprocessor
};

// Null if no row of the table has so many threads.
template <int n>
const Shape* find(const Shape (&table)[n], int64_t threads) {
    for (const Shape& shape : table) {
        if (threads <= shape.threads) return &shape;
    }
    return nullptr;
}

// Threads of a block of the block version: no more than there is work for.
inline int block_threads(int64_t vectors) {
    int threads = kWarp;
    while (threads < 512 && threads < vectors) threads *= 2;
    return threads;
}

// Shared memory of a block: a part of the row at work for each thread, and one of the next row.
template <class T>
int backward_bytes(const Shape& shape) {
    return 2 * kBackwardVectors<T> * int(sizeof(Part<T>)) * shape.threads * shape.rows;
}

template <class T>
struct BackwardPlan {
    bool whole;          // may the kernels use vectors?
    const Shape* shape;  // of backward_vector; null: the block version does the work
    dim3 grid, block;    // of backward_vector or of columns_block
    int64_t partials;

    BackwardPlan(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                 int64_t version) {
        whole = version == 2 && is_aligned(g, x, weight) && cols % kAccess<T> == 0;
        const int64_t vectors = whole ? cols / kAccess<T> : cols;
        shape = nullptr;
        if (whole && kAccess<T> > 1) {
            shape = find(kBackward, ceil_div<int64_t>(vectors, kBackwardVectors<T>));
            if (shape != nullptr && backward_bytes<T>(*shape) + kRowSumBytes > shared_bytes())
                shape = nullptr;
        }
        if (shape != nullptr) {
            block = dim3(shape->threads, shape->rows);
            const int blocks = multiprocessors() * (kBackwardThreads / (block.x * block.y));
            grid = dim3(smaller<int64_t>(ceil_div<int64_t>(rows, block.y), blocks));
            partials = int64_t(grid.x) * block.y;
        } else {
            // Enough slices of the rows to give each multiprocessor 2048 threads.
            block = dim3(kWarp, 8);
            const int64_t across = ceil_div<int64_t>(vectors, block.x);
            const int64_t down = smaller(ceil_div<int64_t>(rows, block.y),
                                         ceil_div<int64_t>(multiprocessors() * 8, across));
            grid = dim3(across, smaller<int64_t>(down, 65535));  // CUDA's limit in y
            partials = int64_t(grid.y) * block.y;
        }
    }
};

// ---- launchers. version: 0 naive, 1 block, 2 vector

template <class T>
cudaError_t layer_norm_forward(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                               Acc<T>* rstd, int64_t rows, int64_t cols, double eps,
                               int64_t version, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    if (version == 0) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
            x, weight, bias, y, mean, rstd, rows, cols, Acc<T>(eps));
        return cudaGetLastError();
    }
    constexpr int V = kAccess<T>;
    const bool whole = version == 2 && is_aligned(x, weight, bias, y) && cols % V == 0;
    const int64_t vectors = whole ? cols / V : cols;
    if constexpr (V > 1) {
        const Shape* shape = find(kForward, ceil_div<int64_t>(vectors, kForwardVectors));
        if (whole && shape != nullptr) {
            const dim3 block(shape->threads, shape->rows);
            forward_vector<<<grid_of(ceil_div<int64_t>(rows, shape->rows)), block, 0, stream>>>(
                x, weight, bias, y, mean, rstd, rows, cols, Acc<T>(1) / cols, Acc<T>(eps));
            return cudaGetLastError();
        }
    }
    const auto kernel = whole ? forward_block<T, V> : forward_block<T, 1>;
    kernel<<<grid_of(rows), block_threads(vectors), 0, stream>>>(x, weight, bias, y, mean, rstd,
                                                                 rows, cols, Acc<T>(eps));
    return cudaGetLastError();
}

// How many rows of partial sums backward needs.
template <class T>
int64_t layer_norm_partials(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                            int64_t version) {
    if (version == 0 || cols == 0) return 0;
    return BackwardPlan<T>(g, x, weight, rows, cols, version).partials;
}

template <class T>
cudaError_t layer_norm_backward(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                                const Acc<T>* rstd, T* dx, T* dweight, T* dbias,
                                Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows,
                                int64_t cols, int64_t version, cudaStream_t stream) {
    if (cols == 0) return cudaSuccess;
    if (rows == 0 || version == 0) {
        if (rows > 0) {
            dx_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(g, x, weight, mean, rstd, dx,
                                                                       rows, cols);
        }
        columns_naive<<<ceil_div<int64_t>(cols, 128), 128, 0, stream>>>(g, x, mean, rstd, dweight,
                                                                        dbias, rows, cols);
        return cudaGetLastError();
    }
    constexpr int V = kAccess<T>;
    const BackwardPlan<T> plan(g, x, weight, rows, cols, version);
    if (plan.shape != nullptr) {
        if constexpr (V > 1) {
            const int bytes = backward_bytes<T>(*plan.shape);
            cudaFuncSetAttribute(backward_vector<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 bytes);
            backward_vector<<<plan.grid, plan.block, bytes, stream>>>(
                g, x, weight, mean, rstd, dx, partial_dweight, partial_dbias, rows, cols,
                Acc<T>(1) / cols);
        }
    } else {
        const auto kernel = plan.whole ? dx_block<T, V> : dx_block<T, 1>;
        kernel<<<grid_of(rows), block_threads(plan.whole ? cols / V : cols), 0, stream>>>(
            g, x, weight, mean, rstd, dx, rows, cols);
        const auto columns = plan.whole ? columns_block<T, V> : columns_block<T, 1>;
        columns<<<plan.grid, plan.block, 0, stream>>>(g, x, mean, rstd, partial_dweight,
                                                      partial_dbias, rows, cols);
    }
    launch_column_sums(partial_dweight, dweight, partial_dbias, dbias, plan.partials, cols, stream);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                             \
    template cudaError_t layer_norm_forward<T>(const T*, const T*, const T*, T*, Acc<T>*, Acc<T>*, \
                                               int64_t, int64_t, double, int64_t, cudaStream_t);   \
    template int64_t layer_norm_partials<T>(const T*, const T*, const T*, int64_t, int64_t,        \
                                            int64_t);                                              \
    template cudaError_t layer_norm_backward<T>(const T*, const T*, const T*, const Acc<T>*,       \
                                                const Acc<T>*, T*, T*, T*, Acc<T>*, Acc<T>*,       \
                                                int64_t, int64_t, int64_t, cudaStream_t);
FOR_EACH_TYPE(INSTANTIATE)
