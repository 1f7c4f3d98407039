// The loss of a row: from the statistics in softmax.cuh, its target and, with label smoothing, the
// average of x.
#pragma once

#include "cross_entropy.h"
#include "softmax.cuh"
#include "tunable.h"

// A sum of losses, and how many they are.
template <class T>
struct Losses {
    Acc<T> sum, count;
};

// The loss of a row from its statistics and its x at the target. below: the sum of x - max, for the
// average of x; without smoothing it is not used.
template <class T>
__device__ Acc<T> loss_of(Acc<T> hit, OnlineSoftmax<T> soft, int64_t cols, Acc<T> below,
                          Acc<T> smoothing) {
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

template <class T>
__device__ void set(const LossInto<T>& loss, int64_t i, Acc<T> value) {
    if (loss.of_t != nullptr) loss.of_t[i] = T(value);
    if (loss.of_sums != nullptr) loss.of_sums[i] = value;
}

template <class T>
__device__ Acc<T> at(const Arriving<T>& g, int64_t i) {
    if (g.of_sums != nullptr) return g.of_sums[i];
    return g.of_t != nullptr ? Acc<T>(g.of_t[i]) : Acc<T>(1);
}

// The gradient of an ignored row.
template <class A>
__device__ A zero_or_nan(A sum) {
    return sum == sum ? A(0) : sum;
}

// The state of forward for a row beside its statistics. Each thread of the row has one.
template <class T>
class RowLoss {
  public:
    using A = Acc<T>;

    __device__ RowLoss(int64_t ignore_index, A smoothing)
        : ignore_index_(ignore_index), target_(ignore_index), smoothing_(smoothing) {}

    __device__ void fetch(const int64_t* target) {
        // Volatile, because nvcc would otherwise delay the load until the target is needed.
        asm volatile("ld.global.b64 %0, [%1];" : "=l"(target_) : "l"(target));
    }
    __device__ int64_t target() const { return target_; }

    // Loads x at the target early, which `value` does otherwise.
    __device__ void look_up(const T* x, int64_t cols) {
        if (counts()) hit_ = at_target(x, target_, cols);
        looked_up_ = true;
    }

    // Adds elements of the row, which the statistics include as well: of the vectors `some`, which
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
            below_.values[0] += there ? below : A(0);
            seen_ += there ? V : 0;
        }
    }

    // Reduces over the threads of the row; shift: of the whole row.
    template <class Reduce>
    __device__ void reduce(A shift, Reduce&& reduce) {
        if (smoothing_ == 0) return;
        move_to(shift);
        below_ = reduce(below_);
    }

    __device__ bool counts() const { return target_ != ignore_index_; }

    // 0 if it does not count.
    __device__ A value(const T* x, int64_t cols, OnlineSoftmax<T> soft) const {
        if (!counts()) return 0;
        const A hit = looked_up_ ? hit_ : at_target(x, target_, cols);
        return loss_of(hit, soft, cols, below_.values[0], smoothing_);
    }

  private:
    // The sum is of x - shift, and the max may have grown.
    __device__ void move_to(A shift) {
        below_.values[0] += A(seen_) * (shift_ - shift);
        shift_ = shift;
    }

    int64_t ignore_index_, target_;
    A hit_ = 0;
    bool looked_up_ = false;
    A smoothing_, shift_ = 0;
    Sums<1, A> below_ = {0};  // the sum of x - shift
    int seen_ = 0;            // of so many x
};

// Stores the results of a row where wanted: its statistics for backward and its loss.
template <class T>
__device__ void store_row(OnlineSoftmax<T> soft, const RowLoss<T>& row_loss, const T* x,
                          int64_t cols, int64_t row, LossInto<T> loss, Losses<T>& losses,
                          Acc<T>* max, Acc<T>* sum) {
    using A = Acc<T>;
    const A value = row_loss.value(x, cols, soft);
    losses.sum += value;
    losses.count += A(row_loss.counts());
    if (max != nullptr) {
        max[row] = soft.max;
        sum[row] = soft.max == -A(INFINITY) ? A(NAN) : soft.sum;
    }
    set(loss, row, value);
}

constexpr int kForwardThreads = TUNABLE(kForwardThreads, 256);  // of a block, at most

// Stores the sum of the losses of the block; thread 0 of each of its rows has some.
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
__device__ void take(T x, I c, I end, OnlineSoftmax<T>& soft, RowLoss<T>& row_loss) {
    const Vec<T, 1> number[1] = {{x}};
    soft.raise(Acc<T>(x));
    soft.add(Acc<T>(x), soft.shift());
    row_loss.add(number, soft.shift(), c, I(0), end);
}
