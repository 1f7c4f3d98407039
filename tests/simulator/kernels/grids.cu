// Cooperative grids: their blocks run at once, and wait for each other.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include "launcher.h"

namespace cg = cooperative_groups;

// Each block adds up what the block after it has written in the round before.
__global__ void rounds(int* y, int* total, int count) {
    __shared__ int kept;
    extern __shared__ int mine[];
    const cg::grid_group grid = cg::this_grid();
    const int blocks = gridDim.x, block = blockIdx.x;
    if (threadIdx.x == 0) kept = block;
    mine[threadIdx.x] = block * 100 + threadIdx.x;
    y[grid.thread_rank()] = 1;
    for (int round = 0; round < count; round++) {
        grid.sync();
        const int next = y[(block + 1) % blocks * blockDim.x + threadIdx.x];
        grid.sync();
        y[grid.thread_rank()] += next;
    }
    // Shared memory is each block's own all the while.
    if (kept != block || mine[threadIdx.x] != block * 100 + int(threadIdx.x)) y[0] = -1;
    cg::sync(grid);
    if (grid.thread_rank() == 0)
        for (unsigned long long i = 0; i < grid.size(); i++) *total += y[i];
}

extern "C" cudaError_t run_rounds(int* y, int* total, int count, int blocks, int threads) {
    void* arguments[] = {(void*)&y, (void*)&total, (void*)&count};
    return cudaLaunchCooperativeKernel(
        (void*)rounds, blocks, threads, arguments, threads * sizeof(int), 0);
}

// Half of the blocks arrive, do something else and wait; the others arrive later.
__global__ void split(int* y) {
    const cg::grid_group grid = cg::this_grid();
    y[grid.thread_rank()] = 1;
    auto token = grid.barrier_arrive();
    const int own = blockIdx.x + 2;
    grid.barrier_wait(static_cast<decltype(token)&&>(token));
    const int other = y[grid.size() - 1 - grid.thread_rank()];
    grid.sync();
    y[grid.thread_rank()] = own * 10 + other;
}

extern "C" cudaError_t run_split(int* y, int blocks, int threads) {
    void* arguments[] = {&y};
    return cudaLaunchCooperativeKernel(split, blocks, threads, arguments);
}

__global__ void shape(int* y) {
    const auto grid = cg::this_grid();
    const dim3 at = grid.thread_index(), threads = grid.dim_threads();
    int* out = y + grid.thread_rank() * 6;
    out[0] = grid.block_rank();
    out[1] = at.x + 100 * at.y + 10000 * at.z;
    out[2] = threads.x + 100 * threads.y + 10000 * threads.z;
    out[3] = int(grid.num_blocks()) * 100 + int(grid.size());
    out[4] = grid.block_index().y + 10 * grid.dim_blocks().y;
    out[5] = grid.is_valid();
}

LAUNCHER(run_shape, (int* y), shape<<<dim3(2, 3, 2), dim3(3, 2)>>>(y))

// A barrier of the grid made by hand, without a cooperative launch.
__device__ unsigned arrived;

__global__ void by_hand(int* y) {
    if (threadIdx.x == 0) {
        y[blockIdx.x] = blockIdx.x;
        __threadfence();
        atomicAdd(&arrived, 1u);
        while (*(volatile unsigned*)&arrived < gridDim.x) {
        }
        y[gridDim.x + blockIdx.x] = ((volatile int*)y)[(blockIdx.x + 1) % gridDim.x];
    }
}

extern "C" cudaError_t run_by_hand(int* y, int blocks) {
    const unsigned none = 0;
    cudaMemcpyToSymbol(arrived, &none, sizeof none);
    by_hand<<<blocks, 128>>>(y);
    return cudaGetLastError();
}

// ---- What goes wrong

__global__ void plain(int* y) {
    y[0] = 1;
    cg::this_grid().sync();  // plain
}

LAUNCHER(run_plain, (int* y), plain<<<2, 32>>>(y))

__global__ void returns(int* y, int who) {
    if (blockIdx.x == who) return;
    cg::this_grid().sync();  // for those that returned
    y[blockIdx.x] = 1;
}

extern "C" cudaError_t run_returns(int* y, int who, int blocks) {
    void* arguments[] = {&y, &who};
    return cudaLaunchCooperativeKernel((const void*)returns, blocks, 64, arguments);
}

__global__ void fails(int* y) {
    if (blockIdx.x == 1) __trap();
    cg::this_grid().sync();
    y[blockIdx.x] = 1;
}

extern "C" cudaError_t run_fails(int* y) {
    void* arguments[] = {&y};
    return cudaLaunchCooperativeKernel((void*)fails, 4, 64, arguments);
}

__global__ void spins(int* y) {
    if (blockIdx.x == 0)
        while (*(volatile int*)y == 0) {
        }
    cg::this_grid().sync();
}

extern "C" cudaError_t run_spins(int* y) {
    void* arguments[] = {&y};
    return cudaLaunchCooperativeKernel((void*)spins, 4, 64, arguments);
}

// One warp of the first tile has returned, and two threads of the second.
__global__ void leaves_a_tile(int* y, int warp) {
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    if (threadIdx.x / 32 == warp || threadIdx.x == 70 || threadIdx.x == 71) return;
    tile.sync();  // two warps
    y[threadIdx.x] = 1;
}

LAUNCHER(run_leaves_a_tile, (int* y, int warp), leaves_a_tile<<<1, 128>>>(y, warp))

__global__ void thirds(int* y) {
    y[0] = int(cg::tiled_partition(cg::this_thread_block(), 3).size());  // of three
}

LAUNCHER(run_thirds, (int* y), thirds<<<1, 96>>>(y))

__global__ void copies(int* y, int at, int size) {
    __shared__ int stage[8];
    __pipeline_memcpy_async(&stage[at], &y[at], size);  // wherever
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[0] = stage[at];
}

LAUNCHER(run_copies, (int* y, int at, int size), copies<<<1, 1>>>(y, at, size))

extern "C" int run_most(int threads) {
    int processors, blocks;
    const size_t shared = threads * sizeof(int);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, rounds, threads, shared);
    return blocks * processors;
}

extern "C" int run_cooperates() {
    int yes;
    cudaDeviceGetAttribute(&yes, cudaDevAttrCooperativeLaunch, 0);
    return yes;
}
