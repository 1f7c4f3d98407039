// What cross_entropy and linear_cross_entropy do beside their rows: add up losses, look at targets.
#pragma once

#include "cross_entropy_row.cuh"
#include "dependent_launch.cuh"

// ---- the sum of what the rows have left, always in the same order, by one block or, where there
// are clusters, by one of them

constexpr int kLossThreads = 512;

template <class T>
__global__ void reduce_losses(const Losses<T>* partial, int64_t count, int blocks, bool mean,
                              LossInto<T> loss, Acc<T>* weight) {
    using A = Acc<T>;
    RowReduce reduce(blocks);
    const int64_t first = blockIdx.x * kLossThreads + threadIdx.x;
    KahanSum<A> sum, counted;
    partial = grid_dependency_wait(partial);
#pragma unroll 4
    for (int64_t i = first; i < count; i += int64_t(gridDim.x) * kLossThreads) {
        sum += partial[i].sum;
        counted += partial[i].count;
    }
    const auto all = reduce(Sums<2, A>{sum.value, counted.value});
    if (first > 0) return;
    set(loss, 0, mean ? all[0] / all[1] : all[0]);
    if (mean && weight != nullptr) *weight = 1 / all[1];
}

template <class T>
void launch_reduce_losses(const Losses<T>* partial, int64_t count, bool mean, LossInto<T> loss,
                          Acc<T>* weight, cudaStream_t stream) {
    const bool is_short = count <= 4 * kLossThreads;  // a thread of one block has all at once
    const int blocks = !is_short && has_clusters(reduce_losses<T>) ? kClusterBlocks : 1;
    launch_secondary(reduce_losses<T>, blocks, blocks, kLossThreads, stream, partial, count, blocks,
                     mean, loss, weight);
}

// ---- targets out of range

// Is every target a class or ignore_index? If not, *bad, in memory that the host sees, becomes 1.
static __global__ void check_targets(const int64_t* target, int64_t rows, int64_t cols,
                                     int64_t ignore_index, int* bad) {
    const int64_t stride = int64_t(gridDim.x) * blockDim.x;
#pragma unroll 4
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < rows; i += stride) {
        const int64_t t = target[i];
        if (t != ignore_index && (t < 0 || t >= cols)) *bad = 1;
    }
}

inline void launch_check_targets(const int64_t* target, int64_t rows, int64_t cols,
                                 int64_t ignore_index, int* bad, cudaStream_t stream) {
    if (rows == 0) return;
    const int64_t blocks = smaller<int64_t>(ceil_div<int64_t>(rows, 1024), multiprocessors());
    check_targets<<<blocks, 256, 0, stream>>>(target, rows, cols, ignore_index, bad);
}
