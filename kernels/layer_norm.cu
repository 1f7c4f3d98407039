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

#include "rows.cuh"

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
// threads' sums. For dweight and dbias a thread takes a column of a slice of the rows, and a second
// pass adds up the slices.
// Flaw: forward reads each row three times, backward twice and once more for the columns.

template <class T>
__global__ void forward_block(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                              Acc<T>* rstd, int64_t rows, int64_t cols, Acc<T> eps) {
    using A = Acc<T>;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const T* in = x + row * cols;
        T* out = y + row * cols;
        A sum[1] = {0}, d_sums[2] = {0, 0};  // of x; of d = x - rough_mean and of d * d
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum[0] += A(in[c]);
        row_sum(sum, turn);
        const A rough_mean = sum[0] / cols;
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
            const A d = A(in[c]) - rough_mean;
            d_sums[0] += d;
            d_sums[1] += d * d;
        }
        row_sum(d_sums, turn);
        const A d_average = d_sums[0] / cols;
        const A m = rough_mean + d_average;
        const A r = 1 / sqrt(variance(d_average, d_sums[1] / cols) + eps);
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
            out[c] = T((A(in[c]) - m) * r * A(weight[c]) + A(bias[c]));
        if (threadIdx.x == 0) mean[row] = m, rstd[row] = r;
    }
}

template <class T>
__global__ void dx_block(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                         const Acc<T>* rstd, T* dx, int64_t rows, int64_t cols) {
    using A = Acc<T>;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const T *g_row = g + row * cols, *x_row = x + row * cols;
        const A m = mean[row], r = rstd[row];
        A sums[2] = {0, 0};  // of h, of h * xhat
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
            const A h = product(A(g_row[c]), A(weight[c]));
            sums[0] += h;
            sums[1] += h * ((A(x_row[c]) - m) * r);
        }
        row_sum(sums, turn);
        const A h_average = sums[0] / cols, h_xhat_average = sums[1] / cols;
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
            const A h = product(A(g_row[c]), A(weight[c])), xhat = (A(x_row[c]) - m) * r;
            dx[row * cols + c] = T(r * (h - h_average - xhat * h_xhat_average));
        }
    }
}

template <class T>
__global__ void columns_block(const T* g, const T* x, const Acc<T>* mean, const Acc<T>* rstd,
                              Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows,
                              int64_t cols) {
    using A = Acc<T>;
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    const int64_t slice = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t slices = int64_t(gridDim.y) * blockDim.y;
    A weight_sum = 0, bias_sum = 0;
#pragma unroll 4
    for (int64_t row = slice; row < rows; row += slices) {
        const A d = A(g[row * cols + c]);
        weight_sum += d * ((A(x[row * cols + c]) - mean[row]) * rstd[row]);
        bias_sum += d;
    }
    partial_dweight[slice * cols + c] = weight_sum;
    partial_dbias[slice * cols + c] = bias_sum;
}

// ---- vector: a thread keeps its part of the row, N vectors of 16 bytes, in registers, so that
// memory is read once: forward takes the mean and then the deviations from it out of registers. A
// row too wide for one block is shared out among the blocks of a cluster.
// Backward also keeps the weights, and the sums of its columns over all rows that the block takes.
// For the next row it has no registers left, so that one is on its way to shared memory meanwhile.
// Flaw: a row that does not fit, or is no multiple of the vector wide, goes back to block.

// Is the first mean exact enough? A sum of numbers of two bytes hardly rounds: with the digits that
// a float has to spare, the numbers of a row whose mean is large beside its deviation add up
// exactly.
template <class T>
constexpr bool kMeanIsExact = sizeof(T) == 2;

// one_nth: 1 / cols, so that no thread divides. blocks: of a cluster.
template <class T>
__global__ __launch_bounds__(kForwardThreads, kForwardBlocks) void forward_vector(
    const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean, Acc<T>* rstd, int64_t rows,
    int cols, int blocks, Acc<T> one_nth, Acc<T> eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kForwardVectors;
    const Columns<T, N> column(blocks);
    RowMerge merge(blocks);
    const int64_t row = int64_t(blockIdx.x / blocks) * blockDim.y + threadIdx.y;
    const int end = row < rows ? cols : 0;  // past the last row there is nothing to do
    x += row * cols;
    y += row * cols;
    Vec<T, V> v[N];
    Totals<1, A> sum = {0};
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c < end) v[n] = load<V>(x + c);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
        if (column[n] >= end) break;
        for (int k = 0; k < V; ++k) sum.values[0] += A(v[n][k]);
    }
    A m = merge(sum)[0] * one_nth, square = 0, d_sum = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
        if (column[n] >= end) break;
        for (int k = 0; k < V; ++k) {
            const A d = A(v[n][k]) - m;
            if constexpr (!kMeanIsExact<T>) d_sum += d;
            square += d * d;
        }
    }
    A var;
    if constexpr (kMeanIsExact<T>) {
        var = merge(Totals<1, A>{square})[0] * one_nth;
    } else {
        const auto sums = merge(Totals<2, A>{d_sum, square});
        m += sums[0] * one_nth;
        var = variance(sums[0] * one_nth, sums[1] * one_nth);
    }
    const A r = 1 / sqrt(var + eps);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= end) break;
        const Vec<T, V> w = load<V>(weight + c), b = load<V>(bias + c);
        for (int k = 0; k < V; ++k) v[n][k] = T((A(v[n][k]) - m) * r * A(w[k]) + A(b[k]));
        store(y + c, v[n]);
    }
    if (column.first == 0 && row < rows) mean[row] = m, rstd[row] = r;
}

template <class T>
__global__ __launch_bounds__(kBackwardThreads) void backward_vector(
    const T* g, const T* x, const T* weight, const Acc<T>* mean, const Acc<T>* rstd, T* dx,
    Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows, int cols, int blocks,
    Acc<T> one_nth) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>;
    const Columns<T, N> column(blocks);
    RowMerge merge(blocks);
    const RowPair<T> pair;
    const int64_t slice = int64_t(blockIdx.x / blocks) * blockDim.y + threadIdx.y;
    const int64_t slices = int64_t(gridDim.x / blocks) * blockDim.y;
    A weight_sum[N][V] = {}, bias_sum[N][V] = {};
    Vec<T, V> w[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c < cols) w[n] = load<V>(weight + c);
    }
    A next_m = slice < rows ? mean[slice] : A(0), next_r = slice < rows ? rstd[slice] : A(0);
    pair.fetch(g + slice * cols, x + slice * cols, slice < rows ? cols : 0, column, 0);
    int turn = 0;
    for (int64_t row = slice; row - threadIdx.y < rows; row += slices, turn ^= 1) {
        const int end = row < rows ? cols : 0;  // past the last row there is nothing to do
        const int64_t next = row + slices;
        const A m = next_m, r = next_r;
        next_m = next < rows ? mean[next] : A(0);
        next_r = next < rows ? rstd[next] : A(0);
        pair.fetch(g + next * cols, x + next * cols, next < rows ? cols : 0, column, turn ^ 1);
        await_batches<1>();  // the next row may still be on its way
        Vec<T, V> u[N], v[N];
        Totals<2, A> mine = {0, 0};  // of h, of h * xhat
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            u[n] = pair.a(turn, n);
            v[n] = pair.b(turn, n);
            for (int k = 0; k < V; ++k) {
                const A d = A(u[n][k]), xhat = (A(v[n][k]) - m) * r;
                weight_sum[n][k] += d * xhat;
                bias_sum[n][k] += d;
                const A h = product(d, A(w[n][k]));
                mine.values[0] += h;
                mine.values[1] += h * xhat;
            }
        }
        const auto sums = merge(mine);
        const A h_average = sums[0] * one_nth, h_xhat_average = sums[1] * one_nth;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            for (int k = 0; k < V; ++k) {
                const A h = product(A(u[n][k]), A(w[n][k])), xhat = (A(v[n][k]) - m) * r;
                v[n][k] = T(r * (h - h_average - xhat * h_xhat_average));
            }
            store(dx + row * cols + c, v[n]);
        }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= cols) break;
        for (int k = 0; k < V; ++k) {
            partial_dweight[slice * cols + c + k] = weight_sum[n][k];
            partial_dbias[slice * cols + c + k] = bias_sum[n][k];
        }
    }
}

// ---- launchers. version: 0 naive, 1 block, 2 vector

// Of backward_vector, if that can do it; else the block version has to.
template <class T>
RowLaunch vector_launch(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                        int64_t version) {
    if constexpr (kHasVectors<T>) {
        if (version == 2 && is_aligned(g, x, weight))
            return backward_launch<T>(backward_vector<T>, rows, cols);
    }
    return {};
}

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
    if constexpr (kHasVectors<T>) {
        if (version == 2 && is_aligned(x, weight, bias, y)) {
            const RowLaunch launch = forward_launch<T>(forward_vector<T>, rows, cols);
            if (launch.blocks > 0) {
                launch.start(forward_vector<T>, stream, x, weight, bias, y, mean, rstd, rows,
                             int(cols), launch.blocks, Acc<T>(1) / cols, Acc<T>(eps));
                return cudaGetLastError();
            }
        }
    }
    forward_block<<<grid_of(rows), block_threads(cols), 0, stream>>>(x, weight, bias, y, mean, rstd,
                                                                     rows, cols, Acc<T>(eps));
    return cudaGetLastError();
}

// How many rows of partial sums backward needs.
template <class T>
int64_t layer_norm_partials(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                            int64_t version) {
    if (version == 0 || cols == 0) return 0;
    const RowLaunch launch = vector_launch(g, x, weight, rows, cols, version);
    return launch.blocks > 0 ? launch.rows() : Slices(rows, cols).count();
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
    const RowLaunch launch = vector_launch(g, x, weight, rows, cols, version);
    const Slices slices(rows, cols);
    int64_t partials = slices.count();
    if (launch.blocks == 0) {
        dx_block<<<grid_of(rows), block_threads(cols), 0, stream>>>(g, x, weight, mean, rstd, dx,
                                                                    rows, cols);
        columns_block<<<slices.grid, slices.block, 0, stream>>>(g, x, mean, rstd, partial_dweight,
                                                                partial_dbias, rows, cols);
    } else if constexpr (kHasVectors<T>) {
        partials = launch.rows();
        launch.start(backward_vector<T>, stream, g, x, weight, mean, rstd, dx, partial_dweight,
                     partial_dbias, rows, int(cols), launch.blocks, Acc<T>(1) / cols);
    }
    launch_column_sums(partial_dweight, dweight, partial_dbias, dbias, partials, cols, stream);
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
