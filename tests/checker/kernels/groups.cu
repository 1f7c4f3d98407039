// Planted bugs of cooperative groups: tiles of several warps, asynchronous copies, and grids.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include "export.cuh"

namespace cg = cooperative_groups;

// Each half of the block waits for its own threads alone.
__global__ void half_waits(const float* x, float* y, int n) {
    __shared__ float values[128];
    const int i = threadIdx.x;
    const auto half = cg::tiled_partition<64>(cg::this_thread_block());
    values[i] = x[i];
    half.sync();
    y[i] = values[127 - i];  // BUG half_a_block_waits: race
    if (i < n - 128)
        for (int j = 128 + i; j < n; j += 128) y[j] = x[j];
}

EXPORT(half_a_block_waits, half_waits<<<1, 128>>>(x, y, n))

__global__ void too_early(const float* x, float* y, int n) {
    __shared__ float stage[1000];
    const auto block = cg::this_thread_block();
    cg::memcpy_async(block, stage, x, sizeof(float) * n);
    block.sync();
    for (int i = threadIdx.x; i < n; i += 128)
        y[i] = stage[i];  // BUG copy_is_not_waited_for: asynchronous race
}

EXPORT(copy_is_not_waited_for, too_early<<<1, 128>>>(x, y, n))

// A thread waits for its own copies; the others' need a barrier.
__global__ void own_alone(const float* x, float* y, int n) {
    __shared__ float stage[1024];
    const int i = threadIdx.x;
    for (int j = i; j < n; j += 256) __pipeline_memcpy_async(&stage[j], &x[j], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    for (int j = i; j < n; j += 256)
        y[j] = stage[n - 1 - j];  // BUG copies_of_others: asynchronous race
}

EXPORT(copies_of_others, own_alone<<<1, 256>>>(x, y, n))

// The second barrier of the grid is missing: a block writes what another still reads.
__global__ void one_barrier(const float* x, float* y, int n) {
    const auto grid = cg::this_grid();
    const int i = grid.thread_rank();
    if (i < n) y[i] = x[i];
    grid.sync();
    const float other = i < n ? y[n - 1 - i] : 0;
    if (i < n) y[i] = other;  // BUG a_barrier_is_missing: race
}

extern "C" void a_barrier_is_missing(const float* x, float* y, int n) {
    void* arguments[] = {&x, &y, &n};
    cudaLaunchCooperativeKernel((void*)one_barrier, 8, 128, arguments, 0, 0);
}

__global__ void some_return(const float* x, float* y, int n) {
    const auto grid = cg::this_grid();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[i];
    if (blockIdx.x == 3) return;
    grid.sync();  // BUG a_block_returns: deadlock
}

extern "C" void a_block_returns(const float* x, float* y, int n) {
    void* arguments[] = {&x, &y, &n};
    cudaLaunchCooperativeKernel((void*)some_return, 4, 128, arguments, 0, 0);
}
