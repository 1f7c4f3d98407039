// What the ops share that shift and scale rows to mean 0 and variance 1: the statistics of a row
// x [cols], read by one thread, by a block, or where it is spread over threads, and the gradients
// of weight and bias.
#pragma once

#include "rows.cuh"

// rstd: 1 / sqrt(variance + eps)
template <class A>
struct Moments {
    A mean, rstd;
};

// A sum of many numbers, and so a mean, is off by several roundings. So the first mean is taken as
// rough: with d = x - rough_mean, the average of d is what the mean has lost.
template <class A>
__device__ Moments<A> moments(A rough_mean, A d_average, A d_square_average, A eps) {
    const A variance = d_square_average - d_average * d_average;
    return {rough_mean + d_average, inverse_root((variance < 0 ? A(0) : variance) + eps)};
}

// The moments of R rows, `stride` apart, that a thread asks for long before it needs them. Until
// then they take a register: lane 2 * i of the warp has the i-th row's mean, and its neighbour its
// rstd. (Loaded by all lanes alike, they would be moved to the warp's own registers, which waits
// for them.)
template <class A, int R>
class NextMoments {
  public:
    __device__ NextMoments(const A* mean, const A* rstd, int rows, int stride)
        : from_(threadIdx.x % 2 == 0 ? mean : rstd),
          rows_(rows),
          ahead_(threadIdx.x / 2 % R * stride) {}

    // (Past the last row, any.)
    __device__ A ask(int first) const { return from_[smaller(first + ahead_, rows_ - 1)]; }

    __device__ Moments<A> of(A asked, int i = 0) const {
        return {__shfl_sync(0xffffffff, asked, 2 * i), __shfl_sync(0xffffffff, asked, 2 * i + 1)};
    }

  private:
    const A* from_;
    int rows_, ahead_;
};

// (unroll 1: loops left rolled compile faster, and one thread a row is not about speed.)
template <class T>
__device__ Moments<Acc<T>> thread_moments(const T* x, int64_t cols, Acc<T> eps) {
    using A = Acc<T>;
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
    return moments(rough_mean, d_sum.value / cols, d_square.value / cols, eps);
}

// turn: as row_sum takes it.
template <class T>
__device__ Moments<Acc<T>> block_moments(const T* x, int64_t cols, Acc<T> eps, int turn) {
    using A = Acc<T>;
    A sum[1] = {0}, d_sums[2] = {0, 0};  // of x; of d = x - rough_mean and of d * d
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum[0] += A(x[c]);
    row_sum(sum, turn);
    const A rough_mean = sum[0] / cols;
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
        const A d = A(x[c]) - rough_mean;
        d_sums[0] += d;
        d_sums[1] += d * d;
    }
    row_sum(d_sums, turn);
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

// Is the first mean exact enough? A sum of numbers of two bytes hardly rounds: with the digits that
// a float has to spare, the numbers of a row whose mean is large beside its deviation add up
// exactly.
template <class T>
constexpr bool kMeanIsExact = sizeof(T) == 2;

// Of a row that is spread over threads: each(visit) calls visit(v) for every vector v that the
// thread has of it. one_nth: 1 / cols, so that no thread divides.
template <class T, class Each, class Merge>
__device__ Moments<Acc<T>> spread_moments(Each each, Merge& merge, Acc<T> one_nth, Acc<T> eps) {
    using A = Acc<T>;
    Totals<1, A> sum = {0};
    each([&](const auto& v) {
        for (T x : v.at) sum.values[0] += A(x);
    });
    const A mean = merge(sum)[0] * one_nth;
    A square = 0, d_sum = 0;
    each([&](const auto& v) {
        for (T x : v.at) {
            const A d = A(x) - mean;
            if constexpr (!kMeanIsExact<T>) d_sum += d;
            square += d * d;
        }
    });
    if constexpr (kMeanIsExact<T>) {
        return {mean, inverse_root(merge(Totals<1, A>{square})[0] * one_nth + eps)};
    } else {
        const auto sums = merge(Totals<2, A>{d_sum, square});
        return moments(mean, sums[0] * one_nth, sums[1] * one_nth, eps);
    }
}

// The same in one meeting, and in another two only where they must be, for threads that have a row
// to themselves: sums of d = x - shift and of d * d say what the mean and the deviation are. shift:
// any number that is about as near to the mean as those of the row.
template <class T>
struct QuickMoments {
    using A = Acc<T>;
    using Sums = Totals<2, A>;

    // What to take for it: the average of the row's first vector. Numbers of two bytes need none.
    __device__ static A shift_of(const Vec<T, kVec<T>>& first) {
        A sum = 0;
        if constexpr (!kMeanIsExact<T>) {
            for (T x : first.at) sum += A(x);
        }
        return sum / kVec<T>;
    }

    // Adds a vector's to the thread's sums, which are to be merged.
    template <int V>
    __device__ static void add(Sums& sums, const Vec<T, V>& v, A shift) {
        for (T x : v.at) {
            const A d = kMeanIsExact<T> ? A(x) : A(x) - shift;
            sums.values[0] += d;
            sums.values[1] += d * d;
        }
    }

    // Of the merged sums.
    __device__ static Moments<A> from(Sums sums, A shift, A one_nth, A eps) {
        const A d = sums[0] * one_nth;
        return {shift + d, inverse_root(sums[1] * one_nth - d * d + eps)};
    }
    // The square of d's average has been taken away from the average of its squares. Has that lost
    // no more digits than the result can spare? Not if there is a NaN.
    __device__ static bool suffice(Moments<A> of, A shift) {
        const A d = (of.mean - shift) * of.rstd;
        return d * d < (kMeanIsExact<T> ? 16 : 4);
    }

    // As above, in one product less where the mean is near 0: if it suffices and there is no shift.
    template <int V>
    __device__ static Vec<T, V> shift_and_scale(Vec<T, V> x, Moments<A> of, const Vec<T, V>& weight,
                                                const Vec<T, V>& bias) {
        if constexpr (!kMeanIsExact<T>) return ::shift_and_scale(x, of, weight, bias);
        const A offset = -of.mean * of.rstd;
        for (int k = 0; k < V; ++k)
            x[k] = T(fma(fma(A(x[k]), of.rstd, offset), A(weight[k]), A(bias[k])));
        return x;
    }

    template <class Each, class Merge>
    __device__ static Moments<A> of(Each each, A shift, Merge& merge, A one_nth, A eps) {
        Sums sums = {0, 0};
        each([&](const auto& v) { add(sums, v, shift); });
        sums = merge(sums);
        const Moments<A> quick = from(sums, shift, one_nth, eps);
        return suffice(quick, shift) ? quick : spread_moments<T>(each, merge, one_nth, eps);
    }
};

// Leaves them for backward, if there is one.
template <class A>
__device__ void put(Moments<A> of, int64_t row, A* mean, A* rstd) {
    if (mean != nullptr) mean[row] = of.mean, rstd[row] = of.rstd;
}

// The first and the last of a cluster's rows for which QuickMoments do not suffice.
struct Again {
    int first = 0, last = -1;
    __device__ bool any() const { return last >= 0; }
    __device__ void note(int row) {
        if (!any()) first = row;
        last = row;
    }
};

// From the first to the last of those, again, the rows where QuickMoments have lost digits. It is
// no part of the kernel's loop: there even a branch that is never taken costs 6%.
template <class T, int N, class Merge>
__device__ __noinline__ void finish_again(const T* x, const T* weight, const T* bias, T* y,
                                          Acc<T>* mean, Acc<T>* rstd, Again again, int cols,
                                          int blocks, Merge merge, Acc<T> one_nth, Acc<T> eps) {
    using Quick = QuickMoments<T>;
    constexpr int V = kVec<T>;
    const Columns<T, N> column(cluster_rank());
    for (int row = again.first; row <= again.last; row += clusters()) {
        const T* in = x + int64_t(row) * cols;
        T* out = y + int64_t(row) * cols;
        const auto each = [&](auto visit) {
#pragma unroll 1
            for (int n = 0; n < N && column[n] < cols; ++n) visit(load<V>(in + column[n]));
        };
        const Acc<T> shift = Quick::shift_of(load<V>(in));
        typename Quick::Sums sums = {0, 0};
        each([&](const Vec<T, V>& v) { Quick::add(sums, v, shift); });
        if (Quick::suffice(Quick::from(merge(sums), shift, one_nth, eps), shift)) continue;
        const Moments<Acc<T>> of = spread_moments<T>(each, merge, one_nth, eps);
#pragma unroll 1
        for (int n = 0; n < N && column[n] < cols; ++n) {
            const int c = column[n];
            store(out + c,
                  shift_and_scale(load<V>(in + c), of, load<V>(weight + c), load<V>(bias + c)));
        }
        if (column.first == 0) put(of, row, mean, rstd);
    }
}

// What dx takes of a row that no cluster can keep: the averages over the row of h = g * weight and,
// times rstd, of h * xhat. averages: [rows, 2]
template <class T>
__global__ __launch_bounds__(kSumThreads, 2) void averages_long(
    const T* g, const T* x, const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
    Acc<T>* averages, int cols, int blocks, Acc<T> one_nth) {
    using A = Acc<T>;
    Walk<T, 2> walk(cols, blocks, 0);
    RowMerge merge(blocks);
    const int64_t row = cluster_index();
    const A m = mean[row], r = rstd[row];
    Totals<2, A> mine = {0, 0};
    const auto add = [&](int c, const auto& v) {
        const Vec<T, kVec<T>> w = load<kVec<T>>(weight + c);
        for (int k = 0; k < kVec<T>; ++k) {
            const A h = product(A(v[0][k]), A(w[k]));
            mine.values[0] += h;
            mine.values[1] += h * ((A(v[1][k]) - m) * r);
        }
    };
    walk.read(add, g + row * cols, x + row * cols);
    const auto sums = merge(mine);
    if (!walk.is_first()) return;
    averages[2 * row] = sums[0] * one_nth;
    averages[2 * row + 1] = sums[1] * one_nth * r;
}

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
        const A h = product(d, A(weight[k]));
        h_sum += h;
        h_xhat_sum += h * xhat;
    }
}

// ---- the gradients of weight and bias: dweight = sum of g * xhat, dbias = sum of g, over the rows

// A thread for each column.
template <class T>
__global__ void columns_naive(const T* g, const T* x, const Acc<T>* mean, const Acc<T>* rstd,
                              Into<T> dweight, Into<T> dbias, int64_t rows, int64_t cols) {
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
    put(dweight, c, weight_sum.value);
    put(dbias, c, bias_sum.value);
}

// A thread for V neighbouring columns of a slice of the rows.
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
        for (int k = 0; k < V; ++k) {
            weight_sum[k] += A(u[k]) * ((A(v[k]) - mean[row]) * rstd[row]);
            bias_sum[k] += A(u[k]);
        }
    }
    store(partial_dweight + slice * cols + c, weight_sum);
    store(partial_dbias + slice * cols + c, bias_sum);
}
