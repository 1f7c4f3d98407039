// The like of correct.cu, with libcu++ and CUB.
#include <cooperative_groups.h>
#include <cub/block/block_reduce.cuh>
#include <cuda/atomic>
#include <cuda/pipeline>
#include "export.cuh"

// The first warp fills two stages in turn, and the others take from them.
__global__ void stages(const float* x, float* y, int n) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    __shared__ float tile[2][kWarp];
    auto block = cooperative_groups::this_thread_block();
    const bool produces = threadIdx.x < kWarp;
    auto pipe = cuda::make_pipeline(block, &state, kWarp);
    for (int turn = 0; turn < (n + kWarp - 1) / kWarp; turn++) {
        const int at = turn * kWarp + threadIdx.x % kWarp;
        if (produces) {
            pipe.producer_acquire();
            if (at < n)
                cuda::memcpy_async(&tile[turn % 2][threadIdx.x], &x[at], sizeof(float), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            if (threadIdx.x < 2 * kWarp && at < n) y[at] = tile[turn % 2][threadIdx.x % kWarp];
            pipe.consumer_release();
        }
    }
}
EXPORT(pipeline_of_stages, stages<<<1, kThreads>>>(x, y, n))

// One lane arrives for its warp, and one waits for it.
__global__ void lanes_that_arrive(const float* x, float* y, int n) {
    __shared__ cuda::barrier<cuda::thread_scope_block> filled;
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, lane = t % kWarp;
    if (t == 0) init(&filled, kThreads / kWarp);
    __syncthreads();
    tile[t] = x[t];
    __syncwarp();
    if (lane == 0) filled.arrive_and_wait();
    __syncwarp();
    y[t] = tile[kThreads - 1 - t];
}
EXPORT(barrier_of_warps, lanes_that_arrive<<<1, kThreads>>>(x, y, n))

// A flag is handed over by release and acquire, and the last block adds what the others left.
__device__ float partial[8];
__device__ cuda::atomic<int, cuda::thread_scope_device> blocks_done;
__global__ void last_block_adds(const float* x, float* y, int n) {
    using Reduce = cub::BlockReduce<float, kThreads>;
    __shared__ typename Reduce::TempStorage storage;
    __shared__ bool is_last;
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const float sum = Reduce(storage).Sum(i < n ? x[i] : 0);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        is_last = blocks_done.fetch_add(1, cuda::memory_order_acq_rel) == int(gridDim.x) - 1;
    }
    __syncthreads();
    if (!is_last) return;
    if (threadIdx.x < gridDim.x) y[threadIdx.x] = partial[threadIdx.x];
    if (threadIdx.x == 0) blocks_done.store(0, cuda::memory_order_relaxed);
}
EXPORT(atomic_of_the_last_block, last_block_adds<<<8, kThreads>>>(x, y, n))
