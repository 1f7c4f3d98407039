// cross_entropy: loss = log(sum of e^x) - x[target] for each row of x
//
//   x, dx [rows, cols] T        target [rows] int64        loss [rows] T, or [] for mean and sum
//   max, sum [rows] float, partial [count] of two floats, weight [1] float     (double for double)
//   forward: max, sum and weight are null where there will be no backward
//   g [rows] or [] T: the gradient that arrives; dx: the gradient that leaves
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

#include "edges.cuh"
#include "second.cuh"
#include "softmax.cuh"

// Elements per access. double, which is here for checks of gradients, does without vectors.
template <class T>
constexpr int kAccess = sizeof(T) == 8 ? 1 : kVec<T>;

// A sum of losses, and how many they are.
template <class T>
struct Losses {
    Acc<T> sum, count;
};

// The loss of a row from its statistics and its x at the target. below: the sum of x - max, for the
// average of x; without smoothing it is not used.
template <class T>
__device__ Acc<T> loss_of(Acc<T> hit, Soft<T> soft, int64_t cols, Acc<T> below, Acc<T> smoothing) {
    using A = Acc<T>;
    const A log_sum = log(soft.sum);
    const A loss = log_sum - (hit - soft.max);
    if (smoothing == 0) return loss;
    return (1 - smoothing) * loss + smoothing * (log_sum - below / A(cols));
}

// x at the target; NaN, without reading, where that is no class.
template <class T>
__device__ Acc<T> at_target(const T* x, int64_t target, int64_t cols) {
    return target < 0 || target >= cols ? Acc<T>(NAN) : Acc<T>(x[target]);
}

// The gradient of an ignored row.
template <class A>
__device__ A nothing(A sum) {
    return sum == sum ? A(0) : sum;
}

// ---- naive: one thread per row.
// Flaw: neighbouring threads read cols apart, rows threads cannot fill a GPU, and x is read twice.
// (unroll 1: loops left rolled compile faster, and nothing here is about speed.)

template <class T>
__global__ void forward_naive(const T* x, const int64_t* target, T* loss, Losses<T>* partial,
                              Acc<T>* max, Acc<T>* sum, int64_t rows, int64_t cols,
                              int64_t ignore_index, Acc<T> smoothing) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * cols;
    Soft<T> soft = Soft<T>::of_nothing();
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) soft.max = larger(soft.max, A(x[c]));
    LongSum<A> powers, below;
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
    if (loss != nullptr) loss[row] = T(result);
    if (partial != nullptr) partial[row] = {result, A(counts)};
}

template <class T>
__global__ void backward_naive(const T* g, int64_t g_step, const T* x, const int64_t* target,
                               const Acc<T>* max, const Acc<T>* sum, const Acc<T>* weight, T* dx,
                               int64_t rows, int64_t cols, int64_t ignore_index, Acc<T> smoothing) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int64_t t = target[row];
    const bool is_class = t >= 0 && t < cols;
    const A scale = A(g[row * g_step]) * (weight != nullptr ? *weight : A(1));
    const A everywhere = smoothing / A(cols), at_target = 1 - smoothing + everywhere;
    const Ratio<T> share(1, sum[row]);
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) {
        const A power = exponential<T>(A(x[row * cols + c]) - max[row]);
        const A d = scale * share.times_less(power, c == t ? at_target : everywhere);
        dx[row * cols + c] = T(t == ignore_index ? nothing(sum[row]) : is_class ? d : A(NAN));
    }
}

// ---- online: the threads of one or more warps share a row, neighbouring threads read neighbours,
// and max and sum come from one pass. With 32 registers each, a multiprocessor has room for all its
// threads: what a thread asks for is little.
// Flaw: small reads, too few bytes on their way.

// What forward knows of a row beside its statistics. Each thread of the row has one.
template <class T>
class RowLoss {
  public:
    using A = Acc<T>;

    __device__ RowLoss(int64_t ignore_index, A smoothing)
        : ignore_index_(ignore_index), target_(ignore_index), smoothing_(smoothing) {}

    __device__ void ask(const int64_t* target) {
#if PLAYGROUND_CUDA  // at once: nvcc would put it off until the target is needed
        asm volatile("ld.global.b64 %0, [%1];" : "=l"(target_) : "l"(target));
#else
        target_ = *target;
#endif
    }
    // Asks for x at the target, which `value` does otherwise.
    __device__ void look_up(const T* x, int64_t cols) {
        if (counts()) hit_ = at_target(x, target_, cols);
        looked_up_ = true;
    }

    // Takes in numbers of the row, which the statistics have as well: of the vectors `some`, which
    // begin at column c and are `step` columns apart, those before `end`. shift: of the statistics.
    template <int V, int N, class I>
    __device__ void add(const Vec<T, V> (&some)[N], A shift, I c, I step, I end) {
        if (smoothing_ == 0) return;
        if (sizeof(T) > 2 || seen_ == 0) move_to(shift);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            A below = 0;
            if constexpr (sizeof(T) == 2) {  // of so few digits that their sum is exact enough
                for (T x : some[n].at) below += A(x);
                below -= V * shift_;
            } else {  // what is subtracted for the power as well
                for (T x : some[n].at) below += A(x) - shift_;
            }
            const bool there = c + n * step < end;
            below_.value += there ? below : A(0);
            seen_ += there ? V : 0;
        }
    }

    // Merges what all threads of the row have taken in; shift: of all of it.
    template <class Sum>
    __device__ void merge(A shift, Sum sum) {
        if (smoothing_ == 0) return;
        move_to(shift);
        below_ = sum(below_);
    }

    __device__ bool counts() const { return target_ != ignore_index_; }

    // 0 if it does not count.
    __device__ A value(const T* x, int64_t cols, Soft<T> soft) const {
        if (!counts()) return 0;
        const A hit = looked_up_ ? hit_ : at_target(x, target_, cols);
        return loss_of(hit, soft, cols, below_.value, smoothing_);
    }

  private:
    // The sum is of x - shift, and the max may have grown.
    __device__ void move_to(A shift) {
        below_.value += A(seen_) * (shift_ - shift);
        shift_ = shift;
    }

    int64_t ignore_index_, target_;
    A hit_ = 0;
    bool looked_up_ = false;
    A smoothing_, shift_ = 0;
    Total<A> below_ = {0};  // the sum of x - shift
    int seen_ = 0;          // of so many x
};

// Writes what a row leaves, its statistics for backward and its loss, where each is wanted.
template <class T>
__device__ void put(Soft<T> soft, const RowLoss<T>& row_loss, const T* x, int64_t cols, int64_t row,
                    T* loss, Losses<T>& losses, Acc<T>* max, Acc<T>* sum) {
    using A = Acc<T>;
    const A value = row_loss.value(x, cols, soft);
    losses.sum += value;
    losses.count += A(row_loss.counts());
    if (max != nullptr) {
        max[row] = soft.max;
        sum[row] = soft.max == -A(INFINITY) ? A(NAN) : soft.sum;
    }
    if (loss != nullptr) loss[row] = T(value);
}

constexpr int kForwardThreads = 256;  // of a block, at most

// Leaves the sum of all losses that the block has come across; thread 0 of each of its rows has
// some.
template <class T>
__device__ void leave(Losses<T> losses, Losses<T>* partial) {
    if (blockDim.y > 1) {
        __shared__ Losses<T> of_warps[kForwardThreads / kWarp];
        const int thread = threadIdx.y * blockDim.x + threadIdx.x;
        if (blockDim.x < kWarp) losses = {warp_sum(losses.sum), warp_sum(losses.count)};
        if (thread % kWarp == 0) of_warps[thread / kWarp] = losses;
        __syncthreads();
        if (thread > 0) return;
        for (int w = 1; w < int(blockDim.x * blockDim.y) / kWarp; ++w) {
            losses.sum += of_warps[w].sum;
            losses.count += of_warps[w].count;
        }
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = losses;
}

// Takes in the number of column c, of a row that ends at column `end`.
template <class T, class I>
__device__ void take(T x, I c, I end, Soft<T>& soft, RowLoss<T>& row_loss) {
    const Vec<T, 1> number[1] = {{x}};
    soft.raise(Acc<T>(x));
    soft.add(Acc<T>(x), soft.shift());
    row_loss.add(number, soft.shift(), c, I(0), end);
}

template <class T>
__global__ __launch_bounds__(kForwardThreads, sizeof(T) == 8 ? 4 : 8) void forward_online(
    const T* x, const int64_t* target, T* loss, Losses<T>* partial, Acc<T>* max, Acc<T>* sum,
    int64_t rows, int64_t cols, int64_t ignore_index, Acc<T> smoothing) {
    Losses<T> losses = {0, 0};
    RowMerge merge(1);
    const int64_t stride = int64_t(gridDim.x) * blockDim.y;
    for (int64_t top = int64_t(blockIdx.x) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const int64_t end = row < rows ? cols : 0;
        const T* in = x + row * cols;
        RowLoss<T> row_loss(ignore_index, smoothing);
        if (row < rows) row_loss.ask(target + row);
        Soft<T> soft = Soft<T>::of_nothing();
        for (int64_t c = threadIdx.x; c < end; c += blockDim.x) take(in[c], c, end, soft, row_loss);
        soft = merge(soft);
        row_loss.merge(soft.shift(), merge);
        if (threadIdx.x == 0 && row < rows)
            put(soft, row_loss, in, cols, row, loss, losses, max, sum);
    }
    if (partial != nullptr) leave(losses, partial);
}

constexpr int kAhead = 4;  // vectors that a thread asks for before it works on the first

template <class T, int V, bool kWhole = true>
__global__ void backward_online(const T* g, int64_t g_step, const T* x, const int64_t* target,
                                const Acc<T>* max, const Acc<T>* sum, const Acc<T>* weight, T* dx,
                                int64_t rows, int64_t cols, int64_t ignore_index,
                                Acc<T> smoothing) {
    using A = Acc<T>;
    const int64_t step = blockDim.x * V;
    const int64_t stride = int64_t(gridDim.x) * blockDim.y;
    for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < rows; row += stride) {
        const int64_t t = target[row];
        const bool counts = t != ignore_index;
        A scale = A(g[row * g_step]) * (weight != nullptr ? *weight : A(1));
        if (t < 0 || t >= cols) scale = A(NAN);
        const A row_max = max[row];
        const Ratio<T> share(1, sum[row]);
        const A everywhere = smoothing / A(cols), at_target = 1 - smoothing + everywhere;
        const T ignored = T(nothing(sum[row]));
        const auto gradient = [&](T x, A wanted) {
            const A power = exponential<T>(A(x) - row_max);
            return counts ? T(scale * share.times_less(power, wanted)) : ignored;
        };
        const Inner<T, kWhole, int64_t> inner(x + row * cols, cols);
        for (int64_t first = inner.begin + threadIdx.x * V; first < inner.end;
             first += kAhead * step) {
            Vec<T, V> ahead[kAhead];
#pragma unroll
            for (int n = 0; n < kAhead; ++n) {
                const int64_t c = first + n * step;
                ahead[n] = load_once<V>(x + row * cols + c, counts && c < inner.end);
            }
#pragma unroll
            for (int n = 0; n < kAhead; ++n) {
                const int64_t c = first + n * step;
                if (c >= inner.end) break;
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
        inner.edges(threadIdx.x, [&](int, int64_t c) {
            dx[row * cols + c] = gradient(x[row * cols + c], c == t ? at_target : everywhere);
        });
    }
}

// ---- vector: 16 bytes per access. A thread asks for eight before it works on the first, and many
// small blocks do so at different times. Where rows are no multiple of the vector wide, they begin
// and end with single elements (edges.cuh).

constexpr int kForwardAhead = 8;  // vectors on their way to a thread
template <class T>
constexpr int kAtOnce = sizeof(T) == 2 ? 2 : 8;  // of which so many raise the max together

template <class T, bool kWhole>
__global__ __launch_bounds__(kForwardThreads, 4) void forward_vector(
    const T* x, const int64_t* target, T* loss, Losses<T>* partial, Acc<T>* max, Acc<T>* sum,
    int64_t rows, int64_t cols, int64_t ignore_index, Acc<T> smoothing) {
    constexpr int V = kVec<T>, N = kAtOnce<T>;
    let_second_begin();
    const int step = blockDim.x * V;
    const int64_t stride = int64_t(gridDim.x) * blockDim.y;
    Losses<T> losses = {0, 0};
    RowMerge merge(1);
    for (int64_t top = int64_t(blockIdx.x) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const T* begin = x + row * cols;
        const Inner<T, kWhole> inner(begin, row < rows ? int(cols) : 0);
        const T* in = begin + inner.begin;
        const int end = inner.width();
        RowLoss<T> row_loss(ignore_index, smoothing);
        Soft<T> soft = Soft<T>::of_nothing();
        for (int first = threadIdx.x * V; first < end; first += kForwardAhead * step) {
            Vec<T, V> ahead[kForwardAhead];
#pragma unroll
            for (int n = 0; n < kForwardAhead; ++n) {
                const int c = first + n * step;
                ahead[n] = load_once<V>(in + c, c < end, vector_of_nothing<T, V>());
            }
            if (first < step) row_loss.ask(target + row);  // once, after the row itself
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
        inner.edges(
            threadIdx.x, [&](int, int c) { take(begin[c], c, inner.cols, soft, row_loss); });
        soft = merge(soft);
        row_loss.merge(soft.shift(), merge);
        if (threadIdx.x == 0 && row < rows)
            put(soft, row_loss, begin, cols, row, loss, losses, max, sum);
    }
    if (partial != nullptr) leave(losses, partial);
}

// Rows that up to a warp of threads can hold: their max is known before the first power. kFull: of
// rows that leave no vector of a thread empty.
constexpr int kHeldThreads = 128;  // of a block

template <class T, bool kFull>
__global__ __launch_bounds__(kHeldThreads, 8) void forward_held(
    const T* x, const int64_t* target, T* loss, Losses<T>* partial, Acc<T>* max, Acc<T>* sum,
    int64_t rows, int64_t cols, int64_t ignore_index, Acc<T> smoothing) {
    constexpr int V = kVec<T>;
    let_second_begin();
    const int lanes = blockDim.x, step = lanes * V, first = threadIdx.x * V;
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const int end = row < rows ? int(cols) : 0;
    const T* in = x + (kFull ? smaller(row, rows - 1) : row) * cols;
    Vec<T, V> v[kForwardAhead];
#pragma unroll
    for (int n = 0; n < kForwardAhead; ++n) {
        const int c = first + n * step;
        v[n] =
            kFull ? load_once<V>(in + c) : load_once<V>(in + c, c < end, vector_of_nothing<T, V>());
    }
    RowLoss<T> row_loss(ignore_index, smoothing);
    if (row < rows) row_loss.ask(target + row);
    // Not with two-byte types: those have more such rows in a warp, and are slower by it.
    if (sizeof(T) > 2 && threadIdx.x == 0) row_loss.look_up(in, cols);
    Soft<T> soft = {warp_max(largest(v), lanes), 0};
    soft.add(v);
    soft.sum = warp_sum(soft.sum, lanes);
    if constexpr (kFull) {
        row_loss.add(v, soft.shift(), 0, 0, 1);  // all of them are there
    } else {
        row_loss.add(v, soft.shift(), first, step, end);
    }
    row_loss.merge(soft.shift(), [&](Total<Acc<T>> mine) { return mine.across(lanes); });
    Losses<T> losses = {0, 0};
    if (threadIdx.x == 0 && row < rows) put(soft, row_loss, in, cols, row, loss, losses, max, sum);
    if (partial != nullptr) leave(losses, partial);
}

// ---- all versions: the sum of what the rows have left, always in the same order, by one block or,
// where there are clusters, by one of them

constexpr int kLossThreads = 512;

template <class T>
__global__ void reduce_losses(const Losses<T>* partial, int64_t count, int blocks, bool mean,
                              T* loss, Acc<T>* weight) {
    using A = Acc<T>;
    RowMerge merge(blocks);
    const int64_t first = blockIdx.x * kLossThreads + threadIdx.x;
    LongSum<A> sum, counted;
    partial = await_first(partial);
#pragma unroll 4
    for (int64_t i = first; i < count; i += int64_t(gridDim.x) * kLossThreads) {
        sum += partial[i].sum;
        counted += partial[i].count;
    }
    const auto all = merge(Totals<2, A>{sum.value, counted.value});
    if (first > 0) return;
    *loss = T(mean ? all[0] / all[1] : all[0]);
    if (mean && weight != nullptr) *weight = 1 / all[1];
}

// Is every target a class or ignore_index? If not, *bad, in memory that the host sees, becomes 1.
__global__ void check_targets(const int64_t* target, int64_t rows, int64_t cols,
                              int64_t ignore_index, int* bad) {
    const int64_t stride = int64_t(gridDim.x) * blockDim.x;
#pragma unroll 4
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < rows; i += stride) {
        const int64_t t = target[i];
        if (t != ignore_index && (t < 0 || t >= cols)) *bad = 1;
    }
}

// ---- launch choices

struct Shape {
    int ahead;        // vectors that a thread asks for in a turn
    int turns, more;  // of a thread, at least, so that few meet; and how many more there may be
    int least, most;  // threads of a block
};
constexpr Shape kForward = {kForwardAhead, 2, 3, 128, kForwardThreads};
constexpr Shape kHeld = {kForwardAhead, 1, 0, kHeldThreads, kWarp};
constexpr Shape kBackward = {kAhead, 2, 1, 128, 512};

template <class T>
struct Plan {
    bool vectors;      // may the kernel use them?
    bool whole;        // and has a row no edges?
    dim3 block;        // threads of a row, rows
    int64_t room = 0;  // vectors that its threads hold in so many turns: no fewer than the row has
    int64_t rows;

    // tensors: that are read and written in vectors.
    template <class... P>
    Plan(int64_t rows, int64_t cols, int64_t version, Shape shape, const P*... tensors)
        : rows(rows) {
        constexpr int V = kAccess<T>;
        whole = is_aligned(tensors...) && cols % V == 0;
        vectors = V > 1 && version >= 2 && cols > 0 && cols <= 1 << 30 &&
                  (whole || may_have_edges<T>(cols, tensors...));
        int64_t threads = kWarp;
        if (vectors) {
            threads = fullest(cols / V, shape);
        } else {
            while (threads < shape.most && threads * shape.turns * shape.ahead < cols) threads *= 2;
        }
        block = dim3(threads, threads < shape.least ? shape.least / threads : 1);
    }
    unsigned grid() const { return grid_of(ceil_div<int64_t>(rows, block.y)); }

  private:
    // Of some numbers of turns, those threads that leave the last turn least empty.
    int64_t fullest(int64_t vectors, Shape shape) {
        int64_t best = 0;
        int64_t turns = ceil_div<int64_t>(vectors, shape.most * shape.ahead);
        if (turns < shape.turns) turns = shape.turns;
        for (const int64_t last = turns + shape.more; turns <= last; ++turns) {
            const int64_t needed = ceil_div(vectors, turns * shape.ahead);
            int64_t threads = vectors > kWarp || !whole ? kEdgeThreads : 4;
            while (threads < smaller<int64_t>(needed, kWarp)) threads *= 2;
            if (needed > kWarp) threads = whole_warps(needed);
            const int64_t asked = threads * shape.ahead;
            const int64_t all = ceil_div(vectors, asked) * asked;
            if (best == 0 || all < room) best = threads, room = all;
        }
        return best;
    }
};

// Of forward, and the kernel that it is of. adds: are the losses added up?
template <class T>
struct ForwardPlan : Plan<T> {
    decltype(&forward_online<T>) kernel = forward_online<T>;

    ForwardPlan(const T* x, int64_t rows, int64_t cols, int64_t version, bool adds)
        : Plan<T>(rows, cols, version, kForward, x) {
        if constexpr (kAccess<T> > 1) {
            if (!this->vectors) return;
            kernel = this->whole ? forward_vector<T, true> : forward_vector<T, false>;
            if (!this->whole || cols > kWarp * kForwardAhead * kAccess<T>) return;
            // A block has few rows there, and to add up their losses they wait for each other.
            if (adds && sizeof(T) > 2) return;
            const Plan<T> held(rows, cols, version, kHeld, x);
            if (held.room > this->room) return;
            Plan<T>::operator=(held);
            const bool is_full = held.room * kAccess<T> == cols;
            kernel = is_full ? forward_held<T, true> : forward_held<T, false>;
        }
    }
};

// ---- launchers. version: 0 naive, 1 online, 2 vector

// How many sums of losses forward leaves, for reduce_losses.
template <class T>
int64_t cross_entropy_partials(const T* x, int64_t rows, int64_t cols, int64_t version) {
    if (rows == 0 || version == 0) return rows;
    return ForwardPlan<T>(x, rows, cols, version, true).grid();
}

cudaError_t cross_entropy_check(const int64_t* target, int64_t rows, int64_t cols,
                                int64_t ignore_index, int* bad, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const int64_t blocks = smaller<int64_t>(ceil_div<int64_t>(rows, 1024), multiprocessors());
    check_targets<<<blocks, 256, 0, stream>>>(target, rows, cols, ignore_index, bad);
    return cudaGetLastError();
}

template <class T>
cudaError_t cross_entropy_forward(const T* x, const int64_t* target, T* loss, Acc<T>* partial,
                                  Acc<T>* max, Acc<T>* sum, Acc<T>* weight, int64_t rows,
                                  int64_t cols, int64_t reduction, int64_t ignore_index,
                                  double smoothing, int64_t version, cudaStream_t stream) {
    T* each = reduction == 0 ? loss : nullptr;
    const auto left = reduction == 0 ? nullptr : reinterpret_cast<Losses<T>*>(partial);
    if (rows > 0 && version == 0) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
            x, target, each, left, max, sum, rows, cols, ignore_index, Acc<T>(smoothing));
    } else if (rows > 0) {
        const ForwardPlan<T> plan(x, rows, cols, version, reduction != 0);
        plan.kernel<<<plan.grid(), plan.block, 0, stream>>>(
            x, target, each, left, max, sum, rows, cols, ignore_index, Acc<T>(smoothing));
    }
    if (reduction != 0) {  // without rows too, though nothing is left then
        const int64_t count = cross_entropy_partials(x, rows, cols, version);
        const int blocks = has_clusters(reduce_losses<T>) ? kClusterBlocks : 1;
        launch_second(reduce_losses<T>, blocks, blocks, kLossThreads, stream, left, count, blocks,
                      reduction == 1, loss, weight);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t cross_entropy_backward(const T* g, const T* x, const int64_t* target, const Acc<T>* max,
                                   const Acc<T>* sum, const Acc<T>* weight, T* dx, int64_t rows,
                                   int64_t cols, int64_t reduction, int64_t ignore_index,
                                   double smoothing, int64_t version, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return cudaSuccess;
    const int64_t g_step = reduction == 0 ? 1 : 0;  // from one row's gradient to the next one's
    if (reduction != 1) weight = nullptr;
    if (version == 0) {
        backward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
            g, g_step, x, target, max, sum, weight, dx, rows, cols, ignore_index,
            Acc<T>(smoothing));
        return cudaGetLastError();
    }
    constexpr int V = kAccess<T>;
    const Plan<T> plan(rows, cols, version, kBackward, x, dx);
    const auto kernel = !plan.vectors ? backward_online<T, 1>
                        : plan.whole  ? backward_online<T, V>
                                      : backward_online<T, V, V == 1>;
    kernel<<<plan.grid(), plan.block, 0, stream>>>(
        g, g_step, x, target, max, sum, weight, dx, rows, cols, ignore_index, Acc<T>(smoothing));
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                       \
    template int64_t cross_entropy_partials<T>(const T*, int64_t, int64_t, int64_t);         \
    template cudaError_t cross_entropy_forward<T>(                                           \
        const T*, const int64_t*, T*, Acc<T>*, Acc<T>*, Acc<T>*, Acc<T>*, int64_t, int64_t,  \
        int64_t, int64_t, double, int64_t, cudaStream_t);                                    \
    template cudaError_t cross_entropy_backward<T>(                                          \
        const T*, const T*, const int64_t*, const Acc<T>*, const Acc<T>*, const Acc<T>*, T*, \
        int64_t, int64_t, int64_t, int64_t, double, int64_t, cudaStream_t);
FOR_EACH_TYPE(INSTANTIATE)
