// cross_entropy: loss = log(sum of e^x) - x[target] for each row of x
//
//   x, dx [rows, cols] T        target [rows] int64
//   loss, g [rows], or [] for mean and sum, T or float: g is the gradient that arrives at the loss
//   max, sum [rows] float, partial [count] of two floats, weight [1] float     (double for double)
//   forward: max, sum and weight are null where there will be no backward
//
// With label smoothing e, the wanted distribution is (1 - e) at the target and e / cols everywhere:
//   loss = log(sum of e^x) - (1 - e) * x[target] - e * (average of x)
//   dx = g * weight * (e^x / (sum of e^x) - (1 - e) at the target - e / cols)
// A row whose target is ignore_index has no loss, and a gradient of 0 unless its x make that a NaN,
// as in PyTorch. weight is 1, and for a mean 1 / (rows that are not ignored).
//
// Traffic, the least a kernel can move: forward reads x, sizeof(T) bytes per element; backward
// reads x and writes dx, 2 * sizeof(T). Forward keeps what it found of each row, max and sum of
// e^(x - max), so that backward need not look for them: log(sum of e^x) = max + log(sum) alone
// would lose digits where max is large. As separate ops, log_softmax would write and read a whole
// tensor more, forward and backward.
//
// A target that is no class reads nothing and makes the loss NaN, and dx in its row.

#include "cross_entropy_losses.cuh"
#include "launches.cuh"
#include "tunable.h"

enum Version : int64_t { kNaive, kOnline, kVector, kOneWarp };  // warp: kWarp is its 32 lanes

// ---- naive: one thread per row.
// Flaw: reads are not coalesced, rows threads cannot fill a GPU, and x is read twice.
// (unroll 1: rolled loops compile faster, and speed does not matter here.)

template <class T>
__global__ void forward_naive(const T* x, const int64_t* target, LossInto<T> loss,
                              Losses<T>* partial, Acc<T>* max, Acc<T>* sum, int64_t rows,
                              int64_t cols, int64_t ignore_index, Acc<T> smoothing) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * cols;
    OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) soft.max = larger(soft.max, A(x[c]));
    KahanSum<A> powers, below;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) {
        powers += exponential<T>(A(x[c]) - soft.max);
        below += A(x[c]) - soft.max;
    }
    soft.sum = powers.value;
    const int64_t t = target[row];
    const bool counts = t != ignore_index;
    const A hit = counts ? at_target(x, t, cols) : A(0);
    const A result = counts ? loss_of(hit, soft, cols, below.value, smoothing) : A(0);
    if (max != nullptr) max[row] = soft.max, sum[row] = soft.sum;
    set(loss, row, result);
    if (partial != nullptr) partial[row] = {result, A(counts)};
}

template <class T>
__global__ void backward_naive(Arriving<T> g, int64_t g_step, const T* x, const int64_t* target,
                               const Acc<T>* max, const Acc<T>* sum, const Acc<T>* weight, T* dx,
                               int64_t rows, int64_t cols, int64_t ignore_index, Acc<T> smoothing) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int64_t t = target[row];
    const bool is_class = t >= 0 && t < cols;
    const A scale = at(g, row * g_step) * (weight != nullptr ? *weight : A(1));
    const A everywhere = smoothing / A(cols), at_target = 1 - smoothing + everywhere;
    const Ratio<T> share(1, sum[row]);
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) {
        const A power = exponential<T>(A(x[row * cols + c]) - max[row]);
        const A d = scale * share.times_less(power, c == t ? at_target : everywhere);
        dx[row * cols + c] = T(t == ignore_index ? zero_or_nan(sum[row]) : is_class ? d : A(NAN));
    }
}

// ---- online: the threads of one or more warps share a row, reads are coalesced,
// and max and sum come from one pass. With 32 registers each, a multiprocessor has room for all its
// threads: each thread has few bytes in flight.
// Flaw: small reads, too few bytes in flight.

template <class T>
__global__ __launch_bounds__(kForwardThreads, sizeof(T) == 8 ? 4 : 8) void forward_online(
    const T* x, const int64_t* target, LossInto<T> loss, Losses<T>* partial, Acc<T>* max,
    Acc<T>* sum, int64_t rows, int64_t cols, int64_t ignore_index, Acc<T> smoothing, int) {
    Losses<T> losses = {0, 0};
    BlockReduce reduce;
    const int64_t stride = int64_t(gridDim.x) * blockDim.y;
    for (int64_t top = int64_t(blockIdx.x) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const int64_t end = row < rows ? cols : 0;
        const T* in = x + row * cols;
        RowLoss<T> row_loss(ignore_index, smoothing);
        if (row < rows) row_loss.fetch(target + row);
        OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
        for (int64_t c = threadIdx.x; c < end; c += blockDim.x) take(in[c], c, end, soft, row_loss);
        soft = reduce(soft);
        row_loss.reduce(soft.shift(), reduce);
        if (threadIdx.x == 0 && row < rows)
            store_row(soft, row_loss, in, cols, row, loss, losses, max, sum);
    }
    if (partial != nullptr) leave(losses, partial);
}

constexpr int kAhead = 4;           // vectors in flight per thread
constexpr int kBackwardWanted = 4;  // blocks of a multiprocessor, if rows are few

template <class T, int V, bool kAligned = true>
__global__ void backward_online(Arriving<T> g, int64_t g_step, const T* x, const int64_t* target,
                                const Acc<T>* max, const Acc<T>* sum, const Acc<T>* weight, T* dx,
                                int64_t rows, int64_t cols, int64_t ignore_index,
                                Acc<T> smoothing) {
    using A = Acc<T>;
    const int64_t step = blockDim.x * V;
    const int64_t stride = int64_t(gridDim.x) * blockDim.y;
    for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < rows; row += stride) {
        const int64_t t = target[row];
        const bool counts = t != ignore_index;
        A scale = at(g, row * g_step) * (weight != nullptr ? *weight : A(1));
        if (t < 0 || t >= cols) scale = A(NAN);
        const A row_max = max[row];
        const Ratio<T> share(1, sum[row]);
        const A everywhere = smoothing / A(cols), at_target = 1 - smoothing + everywhere;
        const T ignored = T(zero_or_nan(sum[row]));
        const auto gradient = [&](T x, A wanted) {
            const A power = exponential<T>(A(x) - row_max);
            return counts ? T(scale * share.times_less(power, wanted)) : ignored;
        };
        const Interior<T, kAligned, int64_t> interior(x + row * cols, cols);
        const int64_t across = kAhead * step;  // columns of a block at a time
        for (int64_t first = interior.begin + blockIdx.y * across + threadIdx.x * V;
             first < interior.end; first += gridDim.y * across) {
            Vec<T, V> ahead[kAhead];
#pragma unroll
            for (int n = 0; n < kAhead; ++n) {
                const int64_t c = first + n * step;
                ahead[n] = load_once<V>(x + row * cols + c, counts && c < interior.end);
            }
#pragma unroll
            for (int n = 0; n < kAhead; ++n) {
                const int64_t c = first + n * step;
                if (c >= interior.end) break;
                Vec<T, V>& v = ahead[n];
                A wanted[V];
                for (int k = 0; k < V; ++k) wanted[k] = everywhere;
                if (t >= c && t < c + V) {
                    for (int k = 0; k < V; ++k) wanted[k] = c + k == t ? at_target : everywhere;
                }
                for (int k = 0; k < V; ++k) v[k] = gradient(v[k], wanted[k]);
                store_at_once(dx + row * cols + c, v);
            }
        }
        if (blockIdx.y > 0) continue;
        interior.edges(threadIdx.x, [&](int, int64_t c) {
            dx[row * cols + c] = gradient(x[row * cols + c], c == t ? at_target : everywhere);
        });
    }
}

// ---- vector: 16 bytes per access. A thread has eight reads in flight, and many small blocks
// read at different times. Few rows are shared by the blocks of a cluster each. Where rows are no
// multiple of the vector wide, they begin and end with single elements (rows.cuh).

constexpr int kForwardAhead = TUNABLE(kForwardAhead, 8);  // vectors on their way to a thread
template <class T>
constexpr int kAtOnce = TUNABLE(kAtOnce, sizeof(T) == 2 ? 2 : 8);  // which raise the max together
constexpr int kForwardBlocks = TUNABLE(kForwardBlocks, 4);         // of kForwardThreads, that fit

// kSpread: whether a row has the `blocks` blocks of a cluster; else it has one.
template <class T, bool kAligned, bool kSpread>
__global__ __launch_bounds__(kForwardThreads, kForwardBlocks) void forward_vector(
    const T* x, const int64_t* target, LossInto<T> loss, Losses<T>* partial, Acc<T>* max,
    Acc<T>* sum, int64_t rows, int64_t cols, int64_t ignore_index, Acc<T> smoothing, int blocks) {
    constexpr int V = kVec<T>, N = kAtOnce<T>;
    auto reduce = [&] {
        if constexpr (kSpread) {
            return RowReduce<kForwardThreads / kWarp>(blocks);
        } else {
            return BlockReduce();
        }
    }();
    launch_dependents();
    const Columns<T> column(0, kSpread ? cluster_rank() : 0, kSpread ? blocks : 1);
    const int step = column.step, thread = column.first / V;
    const int64_t stride = int64_t(kSpread ? clusters() : gridDim.x) * blockDim.y;
    Losses<T> losses = {0, 0};
    for (int64_t top = int64_t(kSpread ? cluster_index() : blockIdx.x) * blockDim.y; top < rows;
         top += stride) {
        const int64_t row = top + threadIdx.y;
        const T* begin = x + row * cols;
        const Interior<T, kAligned> interior(begin, row < rows ? int(cols) : 0);
        const T* in = begin + interior.begin;
        const int end = interior.width();
        RowLoss<T> row_loss(ignore_index, smoothing);
        OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
        for (int first = column.first; first < end; first += kForwardAhead * step) {
            Vec<T, V> ahead[kForwardAhead];
#pragma unroll
            for (int n = 0; n < kForwardAhead; ++n) {
                const int c = first + n * step;
                ahead[n] = load_once<V>(in + c, c < end, minus_infinities<T, V>());
            }
            if (first < step) {  // once, after the row itself
                row_loss.fetch(target + row);
                if (kSpread && thread == 0) row_loss.look_up(begin, cols);
            }
#pragma unroll
            for (int n = 0; n < kForwardAhead; n += N) {
                const int c = first + n * step;
                if (c >= end) break;
                Vec<T, V> some[N];
#pragma unroll
                for (int i = 0; i < N; ++i) some[i] = ahead[n + i];
                soft.raise(largest(some));
                soft.add(some);
                row_loss.add(some, soft.shift(), c, step, end);
            }
        }
        interior.edges(
            thread, [&](int, int c) { take(begin[c], c, interior.cols, soft, row_loss); });
        soft = reduce(soft);
        row_loss.reduce(soft.shift(), reduce);
        if (thread == 0 && row < rows)
            store_row(soft, row_loss, begin, cols, row, loss, losses, max, sum);
    }
    if (partial != nullptr) leave(losses, partial);
}

// ---- warp, for rows that a warp holds; and which threads take which rows

#include "cross_entropy_warp.cuh"

// ---- launchers. A version that cannot take the rows falls back to the one before.

// How many sums of losses forward leaves, for reduce_losses.
template <class T>
int64_t cross_entropy_partials(const T* x, int64_t rows, int64_t cols, int64_t version) {
    if (rows == 0 || version == kNaive) return rows;
    return ForwardPlan<T>(x, rows, cols, version, true).grid();
}

cudaError_t cross_entropy_check(const int64_t* target, int64_t rows, int64_t cols,
                                int64_t ignore_index, int* bad, cudaStream_t stream) {
    launch_check_targets(target, rows, cols, ignore_index, bad, stream);
    return cudaGetLastError();
}

template <class T>
cudaError_t cross_entropy_forward(
    const T* x, const int64_t* target, LossInto<T> loss, Acc<T>* partial, Acc<T>* max, Acc<T>* sum,
    Acc<T>* weight, int64_t rows, int64_t cols, int64_t reduction, int64_t ignore_index,
    double smoothing, int64_t version, cudaStream_t stream) {
    const LossInto<T> each = reduction == 0 ? loss : LossInto<T>();
    const auto left = reduction == 0 ? nullptr : reinterpret_cast<Losses<T>*>(partial);
    if (rows > 0 && version == kNaive) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
            x, target, each, left, max, sum, rows, cols, ignore_index, Acc<T>(smoothing));
    } else if (rows > 0) {
        const ForwardPlan<T> plan(x, rows, cols, version, reduction != 0);
        const RowLaunch launch = {dim3(plan.grid()), plan.block, plan.blocks};
        launch.start(plan.kernel, stream, x, target, each, left, max, sum, rows, cols, ignore_index,
                     Acc<T>(smoothing), plan.blocks);
    }
    if (reduction != 0) {  // without rows too, though nothing is left then
        const int64_t count = cross_entropy_partials(x, rows, cols, version);
        launch_reduce_losses(left, count, reduction == 1, loss, weight, stream);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t cross_entropy_backward(
    Arriving<T> g, const T* x, const int64_t* target, const Acc<T>* max, const Acc<T>* sum,
    const Acc<T>* weight, T* dx, int64_t rows, int64_t cols, int64_t reduction,
    int64_t ignore_index, double smoothing, int64_t version, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return cudaSuccess;
    const int64_t g_step = reduction == 0 ? 1 : 0;  // from one row's gradient to the next one's
    if (reduction != 1) weight = nullptr;
    if (version == kNaive) {
        backward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
            g, g_step, x, target, max, sum, weight, dx, rows, cols, ignore_index,
            Acc<T>(smoothing));
        return cudaGetLastError();
    }
    constexpr int V = kHasVectors<T> ? kVec<T> : 1;
    const Plan<T> plan(rows, cols, version, kBackward, x, dx);
    const auto kernel = !plan.vectors  ? backward_online<T, 1>
                        : plan.aligned ? backward_online<T, V>
                                       : backward_online<T, V, V == 1>;
    // Few rows are shared by blocks.
    const int64_t most = ceil_div<int64_t>(cols, plan.block.x * kAhead * (plan.vectors ? V : 1));
    const int64_t wanted = kBackwardWanted * multiprocessors() / plan.grid();
    const dim3 grid(plan.grid(), smaller(most, wanted < 1 ? 1 : wanted));
    kernel<<<grid, plan.block, 0, stream>>>(
        g, g_step, x, target, max, sum, weight, dx, rows, cols, ignore_index, Acc<T>(smoothing));
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                      \
    template decltype(cross_entropy_partials<T>) cross_entropy_partials<T>; \
    template decltype(cross_entropy_forward<T>) cross_entropy_forward<T>;   \
    template decltype(cross_entropy_backward<T>) cross_entropy_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
