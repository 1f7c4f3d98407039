// linear_cross_entropy: the cross entropy of logits = x w^T + bias, which are never all in memory
//
//   x, dx [rows, cols] T    w, dw [classes, cols] T    bias, db [classes] T    target [rows] int64
//   logits [rows, width] T: those of a chunk of the classes, `first` and the next width - 1
//   max, sum, below, hit [rows] float, partial [rows] of two floats, weight [1] float
//                                                          (double for double)
//   loss, g [rows] or [] T or float: g is the gradient that arrives, or 1
//
// The products are matmul's: the binding asks for the logits of a chunk, and with their gradient
// for what the chunk gives to dx and to dw. Here is what lies between those products:
//
//   take       updates the statistics of the rows, chunk by chunk of the classes
//   losses     when all classes have been seen; reduce: their sum or mean
//   gradient   the logits of a chunk become their gradient, in place
//   add        the dx of all chunks of the classes, the db of all chunks of the rows
//
// Where gradients are computed in forward, before one arrives, there are also
//
//   count      the rows that count, for a mean
//   rows       of whole rows: losses, and the logits become their gradients
//   by class   take and gradient of logits that lie by class, [classes, rows], where dw will be
//   scale      when a gradient arrives
//
// The loss and the gradient of a logit are those of cross_entropy.cu, with logits for x.
//
// Traffic, beside the products': each logit is written by a product, read, replaced by its
// gradient, and that is read by two products. In chunks of the classes each is written, read,
// computed again in backward, so written twice, and read again. docs/linear_cross_entropy.md counts
// bytes and operations, and says why they are these.

#include "cross_entropy_losses.cuh"
#include "linear_cross_entropy.h"

// The statistics of each row over the chunks so far, one element per row.
template <class T>
struct Statistics {
    Acc<T>* max;    // of all logits x
    Acc<T>* sum;    // of e^(x - max)
    Acc<T>* below;  // the sum of x - max, for label smoothing
    Acc<T>* hit;    // x at the target; NaN until its chunk comes, and where it is no class
};

// A block is (threads of a row, rows).
constexpr int kRowThreads = 256, kBlockThreads = 128;  // of a row at most; of a block at least

inline dim3 block_of(int64_t width, int V) {
    int threads = kWarp;
    while (threads < kRowThreads && threads * 2 * V < width) threads *= 2;
    return dim3(threads, threads < kBlockThreads ? kBlockThreads / threads : 1);
}

// ---- forward

// The statistics of the elements of a row that a thread has read.
template <class T>
struct RunningStatistics {
    using A = Acc<T>;
    OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
    A below = 0;       // the sum of x - soft.shift()
    int64_t read = 0;  // numbers

    // The sum of x - shift for another shift.
    __device__ A below_for(A shift) const { return below + A(read) * (soft.shift() - shift); }

    template <int V, int N>
    __device__ void take(const T* x, int64_t step, bool smooths) {
        const OnlineSoftmax<T> before = soft;
        if constexpr (V == 1) {
            soft.raise(A(*x));
            soft.add(A(*x), soft.shift());
            below += A(read) * (before.shift() - soft.shift()) + A(*x) - soft.shift();
        } else {
            Vec<T, V> v[N];
#pragma unroll
            for (int n = 0; n < N; ++n) v[n] = load<V>(x + n * step);
            soft.raise(largest(v));
            soft.add(v);
            if (smooths) {
                below += A(read) * (before.shift() - soft.shift());
#pragma unroll
                for (int n = 0; n < N; ++n) {
                    for (T each : v[n].at) below += A(each) - soft.shift();
                }
            }
        }
        read += N * V;
    }

    // The same of numbers that lie apart.
    template <int N>
    __device__ void take(const A (&x)[N], bool smooths) {
        const A before = soft.shift();
        A most = x[0];
#pragma unroll
        for (int n = 1; n < N; ++n) most = larger(most, x[n]);
        soft.raise(most);
#pragma unroll
        for (int n = 0; n < N; ++n) soft.add(x[n], soft.shift());
        if (smooths) {
            below += A(read) * (before - soft.shift());
#pragma unroll
            for (int n = 0; n < N; ++n) below += x[n] - soft.shift();
        }
        read += N;
    }

    // Combines with the statistics of another thread.
    __device__ void combine(const RunningStatistics& other) {
        OnlineSoftmax<T> all = soft;
        all.combine(other.soft);
        below = below_for(all.shift()) + other.below_for(all.shift());
        soft = all;
        read += other.read;
    }
};

// A block reads its rows once.
template <class T, int V>
__global__ __launch_bounds__(kRowThreads) void take_chunk(
    const T* logits, const int64_t* target, Statistics<T> known, int64_t rows, int64_t width,
    int64_t first, bool smooths) {
    using A = Acc<T>;
    constexpr int kAtOnce = V == 1 ? 1 : 4;  // vectors
    BlockReduce reduce;
    const int64_t stride = int64_t(gridDim.x) * blockDim.y, step = blockDim.x * V;
    for (int64_t top = int64_t(blockIdx.x) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const int64_t end = row < rows ? width : 0;
        const T* x = logits + row * width;
        RunningStatistics<T> running;
        int64_t c = threadIdx.x * V;
        for (; c + (kAtOnce - 1) * step < end; c += kAtOnce * step)
            running.template take<V, kAtOnce>(x + c, step, smooths);
        for (; c < end; c += step) running.template take<V, 1>(x + c, step, smooths);
        const OnlineSoftmax<T> soft = reduce(running.soft);
        A below = 0;
        if (smooths) below = reduce(Sums<1, A>{running.below_for(soft.shift())})[0];
        if (threadIdx.x > 0 || row >= rows) continue;
        OnlineSoftmax<T> all = soft;
        A hit = A(NAN);
        if (first > 0) {
            const OnlineSoftmax<T> before = {known.max[row], known.sum[row]};
            all.combine(before);
            below += A(width) * (soft.shift() - all.shift());
            below += known.below[row] + A(first) * (before.shift() - all.shift());
            hit = known.hit[row];
        }
        const int64_t t = target[row] - first;
        known.max[row] = all.max;
        known.sum[row] = all.sum;
        known.below[row] = below;
        known.hit[row] = t >= 0 && t < width ? A(x[t]) : hit;
    }
}

// A thread has a row, of which all chunks have been seen.
template <class T>
__global__ void row_losses(Statistics<T> known, const int64_t* target, LossInto<T> loss,
                           Losses<T>* partial, int64_t rows, int64_t classes, int64_t ignore_index,
                           Acc<T> smoothing) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const OnlineSoftmax<T> soft = {known.max[row], known.sum[row]};
    const bool counts = target[row] != ignore_index;
    const A result =
        counts ? loss_of(known.hit[row], soft, classes, known.below[row], smoothing) : A(0);
    if (soft.max == -A(INFINITY)) known.sum[row] = A(NAN);
    set(loss, row, result);
    if (partial != nullptr) partial[row] = {result, A(counts)};
}

// ---- backward

// Computes the gradients of a row's logits. arrives: the gradient that arrives, times the weight of
// a mean.
template <class T>
struct RowGradient {
    using A = Acc<T>;
    int64_t target;  // -1 if that is no class
    A max, scale, everywhere, at_target;
    Ratio<T> share;

    __device__ RowGradient() : share(1, 1) {}  // of no row yet
    __device__ RowGradient(int64_t target, int64_t classes, int64_t ignore_index, A smoothing,
                           A max, A sum, A arrives)
        : target(target >= 0 && target < classes ? target : -1),
          max(max),
          // 0 leaves a NaN what it is.
          scale(target == ignore_index ? A(0)
                : this->target < 0     ? A(NAN)
                                       : arrives),
          everywhere(smoothing / A(classes)),
          at_target(1 - smoothing + everywhere),
          share(1, sum) {}

    __device__ A operator()(A logit, int64_t of_class) const {
        const A wanted = of_class == target ? at_target : everywhere;
        return scale * share.times_less(exponential<T>(logit - max), wanted);
    }
};

template <class T, int V>
__global__ __launch_bounds__(kRowThreads) void gradient_of_chunk(
    Arriving<T> g, int64_t g_step, T* logits, const int64_t* target, const Acc<T>* max,
    const Acc<T>* sum, const Acc<T>* weight, int64_t rows, int64_t width, int64_t first,
    int64_t classes, int64_t ignore_index, Acc<T> smoothing) {
    const int64_t stride = int64_t(gridDim.x) * blockDim.y;
    for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < rows; row += stride) {
        const Acc<T> arrives = at(g, row * g_step) * (weight != nullptr ? *weight : Acc<T>(1));
        const RowGradient<T> gradient(
            target[row], classes, ignore_index, smoothing, max[row], sum[row], arrives);
        T* x = logits + row * width;
        for (int64_t c = threadIdx.x * V; c < width; c += blockDim.x * V) {
            Vec<T, V> v = load<V>(x + c);
            for (int k = 0; k < V; ++k) v[k] = T(gradient(v[k], first + c + k));
            store(x + c, v);
        }
    }
}

// ---- both directions at once, where all logits of a row are in memory

#include "linear_cross_entropy_classes.cuh"
#include "linear_cross_entropy_rows.cuh"

// ---- forward alone: no logit reaches memory

#include "linear_cross_entropy_tiles.cuh"

// ---- sums of the gradients of chunks

#include "linear_cross_entropy_gradients.cuh"

// For a mean of losses, before there are any: 1 / (rows that count), by one block.
template <class T>
__global__ void count_rows(const int64_t* target, Acc<T>* weight, int64_t rows,
                           int64_t ignore_index) {
    using A = Acc<T>;
    int64_t counted = 0;
#pragma unroll 4
    for (int64_t row = threadIdx.x; row < rows; row += blockDim.x)
        counted += target[row] != ignore_index;
    BlockReduce reduce;
    const auto all = reduce(Sums<1, A>{A(counted)});
    if (threadIdx.x == 0) *weight = 1 / all[0];
}

// ---- launchers

cudaError_t cross_entropy_check(const int64_t* target, int64_t rows, int64_t cols,
                                int64_t ignore_index, int* bad, cudaStream_t stream) {
    launch_check_targets(target, rows, cols, ignore_index, bad, stream);
    return cudaGetLastError();
}

template <class T>
cudaError_t linear_cross_entropy_take(
    const T* logits, const int64_t* target, Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit,
    int64_t rows, int64_t width, int64_t first, bool smooths, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const bool in_vectors = rows_are_aligned<T>(width, logits);
    constexpr int V = kHasVectors<T> ? kVec<T> : 1;
    const dim3 block = block_of(width, in_vectors ? V : 1);
    const auto kernel = in_vectors ? take_chunk<T, V> : take_chunk<T, 1>;
    kernel<<<grid_of(ceil_div<int64_t>(rows, block.y)), block, 0, stream>>>(
        logits, target, Statistics<T>{max, sum, below, hit}, rows, width, first, smooths);
    return cudaGetLastError();
}

// The losses of some rows. partial: null if loss has an element for each row.
template <class T>
cudaError_t linear_cross_entropy_losses(Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit,
                                        const int64_t* target, LossInto<T> loss, Acc<T>* partial,
                                        int64_t rows, int64_t classes, int64_t ignore_index,
                                        double smoothing, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    row_losses<<<ceil_div<int64_t>(rows, 256), 256, 0, stream>>>(
        Statistics<T>{max, sum, below, hit}, target, partial == nullptr ? loss : LossInto<T>(),
        reinterpret_cast<Losses<T>*>(partial), rows, classes, ignore_index, Acc<T>(smoothing));
    return cudaGetLastError();
}

// Reduces the losses of all rows.
template <class T>
cudaError_t linear_cross_entropy_reduce(const Acc<T>* partial, LossInto<T> loss, Acc<T>* weight,
                                        int64_t rows, bool mean, cudaStream_t stream) {
    launch_reduce_losses(
        reinterpret_cast<const Losses<T>*>(partial), rows, mean, loss, weight, stream);
    return cudaGetLastError();
}

template <class T>
cudaError_t linear_cross_entropy_count(const int64_t* target, Acc<T>* weight, int64_t rows,
                                       int64_t ignore_index, cudaStream_t stream) {
    count_rows<T><<<1, kLossThreads, 0, stream>>>(target, weight, rows, ignore_index);
    return cudaGetLastError();
}

template <class T>
cudaError_t linear_cross_entropy_gradient(
    const Arriving<T>& g, T* logits, const int64_t* target, const Acc<T>* max, const Acc<T>* sum,
    const Acc<T>* weight, int64_t rows, int64_t width, int64_t first, int64_t classes,
    int64_t reduction, int64_t ignore_index, double smoothing, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const bool in_vectors = rows_are_aligned<T>(width, logits);
    constexpr int V = kHasVectors<T> ? kVec<T> : 1;
    const dim3 block = block_of(width, in_vectors ? V : 1);
    const auto kernel = in_vectors ? gradient_of_chunk<T, V> : gradient_of_chunk<T, 1>;
    kernel<<<grid_of(ceil_div<int64_t>(rows, block.y)), block, 0, stream>>>(
        g, reduction == 0 ? 1 : 0, logits, target, max, sum, reduction == 1 ? weight : nullptr,
        rows, width, first, classes, ignore_index, Acc<T>(smoothing));
    return cudaGetLastError();
}

// For whole rows: writes the losses to partial, and replaces the logits by their gradients for an
// arriving 1. Rows that do not fit into a cluster's shared memory are read twice.
template <class T>
cudaError_t linear_cross_entropy_rows(
    T* logits, const int64_t* target, Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit,
    Acc<T>* partial, const Acc<T>* weight, int64_t rows, int64_t classes, int64_t reduction,
    int64_t ignore_index, double smoothing, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    if (launch_losses_and_gradients(logits, target, max, sum, reinterpret_cast<Losses<T>*>(partial),
                                    reduction == 1 ? weight : nullptr, rows, classes, ignore_index,
                                    Acc<T>(smoothing), stream)) {
        return cudaGetLastError();
    }
    linear_cross_entropy_take(
        logits, target, max, sum, below, hit, rows, classes, 0, smoothing > 0, stream);
    linear_cross_entropy_losses<T>(
        max, sum, below, hit, target, {}, partial, rows, classes, ignore_index, smoothing, stream);
    return linear_cross_entropy_gradient<T>({}, logits, target, max, sum, weight, rows, classes, 0,
                                            classes, reduction, ignore_index, smoothing, stream);
}

#define INSTANTIATE_ONE(NAME, T) \
    template decltype(linear_cross_entropy_##NAME<T>) linear_cross_entropy_##NAME<T>;
#define INSTANTIATE(T)                    \
    INSTANTIATE_ONE(take, T)              \
    INSTANTIATE_ONE(losses, T)            \
    INSTANTIATE_ONE(reduce, T)            \
    INSTANTIATE_ONE(count, T)             \
    INSTANTIATE_ONE(scale, T)             \
    INSTANTIATE_ONE(gradient, T)          \
    INSTANTIATE_ONE(rows, T)              \
    INSTANTIATE_ONE(by_class_numbers, T)  \
    INSTANTIATE_ONE(take_by_class, T)     \
    INSTANTIATE_ONE(gradient_by_class, T) \
    INSTANTIATE_ONE(tile_numbers, T)      \
    INSTANTIATE_ONE(take_tiles, T)        \
    INSTANTIATE_ONE(add, T)
FOR_EACH_TYPE(INSTANTIATE)
