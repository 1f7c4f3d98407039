// What the norms share: the mean and deviation of a row x [cols], read by one thread, by a block,
// or spread over threads, and the gradients of weight and bias.
#pragma once

#include "column_sums.cuh"

enum Version : int64_t { kNaive, kBlock, kVector, kCluster, kStream };  // as in each NAME.py

// 1 / sqrt(a), to half an ULP, because its error scales the whole row. rsqrt is approximate; one
// Newton step on the residual 1 - a * r * r, computed with fused products, corrects it.
template <class A>
__device__ A rsqrt_rn(A a) {
    const A r = rsqrt(a);
    const A root = a * r, rest = fma(a, r, -root);
    const A lost = fma(-root, r, A(1)) - rest * r;
    return isfinite(root) ? fma(r * lost, A(0.5), r) : r;
}

// ---- the statistics of a row

// rstd: 1 / sqrt(variance + eps)
template <class A>
struct Moments {
    A mean, rstd;
};

// A sum of many elements, and so a mean, is off by several roundings. So the first mean is only
// rough: with d = x - rough_mean, the average of d corrects it.
template <class A>
__device__ Moments<A> moments(A rough_mean, A d_average, A d_square_average, A eps) {
    const A variance = d_square_average - d_average * d_average;
    return {rough_mean + d_average, rsqrt_rn((variance < 0 ? A(0) : variance) + eps)};
}

// (unroll 1: loops left rolled compile faster, and one thread a row is not about speed.)
template <class T>
__device__ Moments<Acc<T>> thread_moments(const T* x, int64_t cols, Acc<T> eps) {
    using A = Acc<T>;
    KahanSum<A> sum, d_sum, d_square;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) sum += A(x[c]);
    const A rough_mean = sum.value / cols;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) {
        const A d = A(x[c]) - rough_mean;
        d_sum += d;
        d_square += d * d;
    }
    return moments(rough_mean, d_sum.value / cols, d_square.value / cols, eps);
}

// end: cols, or 0 for threads that have no row.
template <class T>
__device__ Moments<Acc<T>> block_moments(const T* x, int64_t end, int64_t cols, Acc<T> eps,
                                         BlockReduce<>& reduce) {
    using A = Acc<T>;
    Sums<1, A> sum = {0};
    for (int64_t c = threadIdx.x; c < end; c += blockDim.x) sum.values[0] += A(x[c]);
    const A rough_mean = reduce(sum)[0] / cols;
    Sums<2, A> d_sums = {0, 0};  // of d = x - rough_mean and of d * d
    for (int64_t c = threadIdx.x; c < end; c += blockDim.x) {
        const A d = A(x[c]) - rough_mean;
        d_sums.values[0] += d;
        d_sums.values[1] += d * d;
    }
    d_sums = reduce(d_sums);
    return moments(rough_mean, d_sums[0] / cols, d_sums[1] / cols, eps);
}

// (x - mean) * rstd * weight + bias
template <class T, int V>
__device__ __forceinline__ Vec<T, V> shift_and_scale(
    Vec<T, V> x, Moments<Acc<T>> of, const Vec<T, V>& weight, const Vec<T, V>& bias) {
    using A = Acc<T>;
    for (int k = 0; k < V; ++k) x[k] = T((A(x[k]) - of.mean) * of.rstd * A(weight[k]) + A(bias[k]));
    return x;
}

// Whether the first mean is exact enough. Sums of 2-byte elements hardly round: a float has enough
// extra digits.
template <class T>
constexpr bool kMeanIsExact = sizeof(T) == 2;

// The moments of a row spread over threads: each(visit) calls visit(v) for every vector v of the
// thread. inverse_cols: 1 / cols, so that no thread divides.
template <class T, class Each, class Reduce>
__device__ Moments<Acc<T>> two_pass_moments(Each each, Reduce& reduce, Acc<T> inverse_cols,
                                            Acc<T> eps) {
    using A = Acc<T>;
    Sums<1, A> sum = {0};
    each([&](const auto& v) {
        for (T x : v.at) sum.values[0] += A(x);
    });
    const A mean = reduce(sum)[0] * inverse_cols;
    A square = 0, d_sum = 0;
    each([&](const auto& v) {
        for (T x : v.at) {
            const A d = A(x) - mean;
            if constexpr (!kMeanIsExact<T>) d_sum += d;
            square += d * d;
        }
    });
    if constexpr (kMeanIsExact<T>) {
        return {mean, rsqrt_rn(reduce(Sums<1, A>{square})[0] * inverse_cols + eps)};
    } else {
        const auto sums = reduce(Sums<2, A>{d_sum, square});
        return moments(mean, sums[0] * inverse_cols, sums[1] * inverse_cols, eps);
    }
}

// The same with one reduction, and with another two only where they must be, for threads that have
// a row to themselves: sums of d = x - shift and of d * d say what the mean and the deviation are
// ("shifted data": T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance",
// 1983). shift: any number that is about as near to the mean as those of the row.
template <class T>
struct ShiftedMoments {
    using A = Acc<T>;

    // The shift: the average of the first vector of the row. 2-byte types need none.
    __device__ static A shift_of(const Vec<T, kVec<T>>& first) {
        A sum = 0;
        if constexpr (!kMeanIsExact<T>) {
            for (T x : first.at) sum += A(x);
        }
        return sum / kVec<T>;
    }

    // Adds a vector to the thread's sums.
    template <int V>
    __device__ static void add(Sums<2, A>& sums, const Vec<T, V>& v, A shift) {
        for (T x : v.at) {
            const A d = kMeanIsExact<T> ? A(x) : A(x) - shift;
            sums.values[0] += d;
            sums.values[1] += d * d;
        }
    }

    // The moments from the reduced sums.
    __device__ static Moments<A> from(Sums<2, A> sums, A shift, A inverse_cols, A eps) {
        const A d = sums[0] * inverse_cols;
        return {shift + d, rsqrt_rn(sums[1] * inverse_cols - d * d + eps)};
    }
    // Whether subtracting the square of the average of d from the average of its squares has lost
    // no more digits than the result can spare. False if there is a NaN.
    __device__ static bool suffice(Moments<A> of, A shift) {
        const A d = (of.mean - shift) * of.rstd;
        return d * d < (kMeanIsExact<T> ? 16 : 4);
    }

    // The function above does the same; this one needs one product less where there is no shift,
    // and is as exact where the moments suffice.
    template <int V>
    __device__ static Vec<T, V> shift_and_scale(Vec<T, V> x, Moments<A> of, const Vec<T, V>& weight,
                                                const Vec<T, V>& bias) {
        if constexpr (!kMeanIsExact<T>) return ::shift_and_scale(x, of, weight, bias);
        const A offset = -of.mean * of.rstd;
        for (int k = 0; k < V; ++k)
            x[k] = T(fma(fma(A(x[k]), of.rstd, offset), A(weight[k]), A(bias[k])));
        return x;
    }

    template <class Each, class Reduce>
    __device__ static Moments<A> of(Each each, A shift, Reduce& reduce, A inverse_cols, A eps) {
        Sums<2, A> sums = {0, 0};
        each([&](const auto& v) { add(sums, v, shift); });
        sums = reduce(sums);
        const Moments<A> quick = from(sums, shift, inverse_cols, eps);
        return suffice(quick, shift) ? quick : two_pass_moments<T>(each, reduce, inverse_cols, eps);
    }
};

// Stores the moments for backward, if there is one.
template <class A>
__device__ void store_moments(Moments<A> of, int64_t row, A* mean, A* rstd) {
    if (mean != nullptr) mean[row] = of.mean, rstd[row] = of.rstd;
}

// ---- forward and backward of rows that a block has in vectors

constexpr int kForwardThreads = 512;   // of a block, at most
constexpr int kBackwardThreads = 512;  // of a multiprocessor: 128 registers each, all it has
template <class T>
constexpr int kBackwardVectors = sizeof(T) == 2 ? 2 : 4;  // of a thread: 16 columns

// Where a row of threads of a block that stays takes rows: `first`, and every `stride`-th after it;
// the block's own first row is `behind` before that. Rows that begin equally far from a boundary
// have their vectors in the same columns: where a row has edges, those are a thread's.
template <bool kAligned>
struct GridStride {
    int64_t stride, behind, first;
    __device__ GridStride()
        : stride(int64_t(gridDim.x) * blockDim.y),
          behind(kAligned ? threadIdx.y : int64_t(threadIdx.y) * gridDim.x),
          first((kAligned ? int64_t(blockIdx.x) * blockDim.y : blockIdx.x) + behind) {}
};

// The thread's part of a tensor [cols], converted for arithmetic.
template <class T, int N, bool kAligned>
__device__ void read_columns(const T* tensor, const Columns<T>& column,
                             const Interior<T, kAligned>& interior, Acc<T> (&to)[N][kVec<T>]) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= interior.end) break;
        const Vec<T, kVec<T>> v = interior.load_unaligned(tensor, c);
        for (int k = 0; k < kVec<T>; ++k) to[n][k] = Acc<T>(v[k]);
    }
}

// The same as vectors, where converted elements would take too many registers.
template <class T, int N, bool kAligned>
__device__ void read_columns(const T* tensor, const Columns<T>& column,
                             const Interior<T, kAligned>& interior, Vec<T, kVec<T>> (&to)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c < interior.end) to[n] = interior.load_unaligned(tensor, c);
    }
}

// Stores the block's sums of its columns, for number `slice` of the partial sums: those that its
// rows of threads have are added up first. Every thread calls, when the last row has come. edge:
// the sum of the thread's column of the edges.
template <class T, int N, bool kAligned, class To>
__device__ void write_columns(const To& sums, int64_t slice, const Columns<T>& column,
                              const Interior<T, kAligned>& interior, Acc<T> (&mine)[N][kVec<T>],
                              Acc<T> edge = 0) {
    constexpr int V = kVec<T>;
    struct Place {
        Acc<T> sums[N * V + (kAligned ? 0 : 1)];
    };
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        const int from = int(threadIdx.y) - half;  // who gives away, to whom
        Place* places = reinterpret_cast<Place*>(shared_rows);
        __syncthreads();
        if (from >= 0 && from < half) {
            Place& place = places[from * blockDim.x + threadIdx.x];
            for (int n = 0; n < N; ++n) {
                for (int k = 0; k < V; ++k) place.sums[n * V + k] = mine[n][k];
            }
            if constexpr (!kAligned) place.sums[N * V] = edge;
        }
        __syncthreads();
        if (from >= 0) continue;
        const Place& place = places[threadIdx.y * blockDim.x + threadIdx.x];
        for (int n = 0; n < N; ++n) {
            for (int k = 0; k < V; ++k) mine[n][k] += place.sums[n * V + k];
        }
        if constexpr (!kAligned) edge += place.sums[N * V];
    }
    if (threadIdx.y > 0) return;
    const int64_t begin = slice * interior.cols;
    const int c = interior.edge_column(threadIdx.x);
    if (c >= 0) sums.store(begin, c, edge);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= interior.end) break;
        sums.template store<kAligned>(begin, c, mine[n]);
    }
}

// The same to a row of partial sums.
template <class T, int N, bool kAligned>
__device__ void write_columns(Acc<T>* sums, const Columns<T>& column,
                              const Interior<T, kAligned>& interior, Acc<T> (&mine)[N][kVec<T>],
                              Acc<T> edge = 0) {
    write_columns(PartialSums<T>{sums}, 0, column, interior, mine, edge);
}

// A number of the next row, which is on its way to a register meanwhile; where there is none, 0.
template <class T>
class Prefetched {
  public:
    __device__ void fetch(const T* from, bool there) {
        if constexpr (sizeof(T) == 2) {
            bits_ = there ? *reinterpret_cast<const uint16_t*>(from) : 0;
        } else {
            bits_ = there ? *reinterpret_cast<const uint32_t*>(from) : 0;
        }
    }
    // Waits for the first one, before the loop that fetches the others. Else nvcc waits for it in
    // there, where it is needed first, and by then for the one behind it too. (What a thread sends
    // to itself must have come.)
    __device__ void wait() {
#if PLAYGROUND_CUDA
        bits_ = __shfl_sync(0xffffffff, bits_, (threadIdx.y * blockDim.x + threadIdx.x) % kWarp);
#endif
    }
    __device__ T get() const {
        T number;
        memcpy(&number, &bits_, sizeof(T));
        return number;
    }

  private:
    uint32_t bits_ = 0;
};

// ---- the gradients of weight and bias: dweight = sum of g * xhat, dbias = sum of g, over the rows

// Adds what a vector of g, and of x beside it, gives to a thread's sums: of the columns, for
// dweight and dbias, and of the row's h = g * weight and h * xhat, for dx.
template <class T, int V, class A>
__device__ __forceinline__ void add_gradients(
    const Vec<T, V>& g, const Vec<T, V>& x, const Vec<T, V>& weight, Moments<A> of,
    A (&weight_sum)[V], A (&bias_sum)[V], A& h_sum, A& h_xhat_sum) {
    for (int k = 0; k < V; ++k) {
        const A d = A(g[k]), xhat = (A(x[k]) - of.mean) * of.rstd;
        weight_sum[k] += d * xhat;
        bias_sum[k] += d;
        const A h = multiply_rn(d, A(weight[k]));
        h_sum += h;
        h_xhat_sum += h * xhat;
    }
}

// A thread for each column.
template <class T>
__global__ void columns_naive(const T* g, const T* x, const Acc<T>* mean, const Acc<T>* rstd,
                              Into<T> dweight, Into<T> dbias, int64_t rows, int64_t cols) {
    using A = Acc<T>;
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    KahanSum<A> weight_sum, bias_sum;
#pragma unroll 1
    for (int64_t row = 0; row < rows; ++row) {
        const A d = A(g[row * cols + c]);
        weight_sum += d * ((A(x[row * cols + c]) - mean[row]) * rstd[row]);
        bias_sum += d;
    }
    store_column_sum(dweight, c, weight_sum.value);
    store_column_sum(dbias, c, bias_sum.value);
}

// Blocks of (columns, rows) threads. A thread has a column of a slice of the rows; a block leaves
// the sums of its slices.
constexpr int kSliceThreads = 256;  // of a block

template <class T>
__global__ void columns_block(const T* g, const T* x, const Acc<T>* mean, const Acc<T>* rstd,
                              ColumnSums<T> dweight, ColumnSums<T> dbias, int64_t rows,
                              int64_t cols) {
    launch_dependents();
    using A = Acc<T>;
    __shared__ A weight_sums[kSliceThreads], bias_sums[kSliceThreads];
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t slice = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t slices = int64_t(gridDim.y) * blockDim.y, end = c < cols ? rows : 0;
    A weight_sum = 0, bias_sum = 0;
#pragma unroll 4
    for (int64_t row = slice; row < end; row += slices) {
        const A d = A(g[row * cols + c]);
        weight_sum += d * ((A(x[row * cols + c]) - mean[row]) * rstd[row]);
        bias_sum += d;
    }
    weight_sums[threadIdx.y * blockDim.x + threadIdx.x] = weight_sum;
    bias_sums[threadIdx.y * blockDim.x + threadIdx.x] = bias_sum;
    add_rows_together(blockDim.y, blockDim.x, weight_sums, bias_sums);
    if (threadIdx.y > 0 || c >= cols) return;
    dweight.store(blockIdx.y * cols, c, weight_sums[threadIdx.x]);
    dbias.store(blockIdx.y * cols, c, bias_sums[threadIdx.x]);
}
