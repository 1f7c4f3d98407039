// Planted mistakes about who waits for whom.
#include <assert.h>
#include "export.cuh"

__global__ void two_barriers(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[t] = i < n ? x[i] : 0;
    if (t < 64) {
        __syncthreads();  // BUG barrier_in_both_branches: divergent barrier
        if (i < n) y[i] = tile[t + 64];
    } else {
        __syncthreads();
        if (i < n) y[i] = tile[t - 64];
    }
}
EXPORT(barrier_in_both_branches, two_barriers<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void half_a_barrier(const float* x, float* y, int n) {
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (i < n) y[i] = x[i];
    if (t % 2) {
        __syncthreads();
    } else {
        __syncwarp();  // BUG barrier_against_syncwarp: deadlock
    }
}
EXPORT(barrier_against_syncwarp, half_a_barrier<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void broadcast(const float* x, float* y, int n) {
    const int t = threadIdx.x, i = blockIdx.x * 16 + t;
    float value = i < n ? x[i] : 0;
    if (t >= 16) return;
    value = __shfl_sync(0x0000ffff, value, 16);  // BUG shuffle_from_outside: inactive lane
    if (i < n) y[i] = value;
}
EXPORT(shuffle_from_outside, broadcast<<<(n + 15) / 16, 32>>>(x, y, n))

__global__ void odd_lanes(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float value = i < n ? x[i] : 0;
    if (threadIdx.x % 2)
        value += __shfl_xor_sync(0x55555555, value, 2);  // BUG mask_without_the_caller: failed
    if (i < n) y[i] = value;
}
EXPORT(mask_without_the_caller, odd_lanes<<<blocks_of(n), kThreads>>>(x, y, n))

// Some threads are through with their loop, and wait at the barrier after it.
__global__ void uneven(const float* x, float* y, int n) {
    __shared__ float sums[kThreads];
    const int t = threadIdx.x;
    sums[t] = 0;
    for (int i = t; i < n; i += kThreads) {
        sums[t] += x[i];
        __syncthreads();  // BUG barrier_in_an_uneven_loop: divergent barrier
    }
    __syncthreads();
    for (int i = t; i < n; i += kThreads) y[i] = sums[kThreads - 1 - t];
}
EXPORT(barrier_in_an_uneven_loop, uneven<<<1, kThreads>>>(x, y, n))

__global__ void butterfly(const float* x, float* y, int n) {
    const int t = threadIdx.x, i = blockIdx.x * 24 + t;
    float sum = i < n ? x[i] : 0;
    for (int bit = 16; bit > 0; bit /= 2) {
        sum += __shfl_xor_sync(0x00ffffff, sum, bit);  // BUG butterfly_of_24_lanes: inactive lane
    }
    if (i < n) y[i] = sum;
}
EXPORT(butterfly_of_24_lanes, butterfly<<<(n + 23) / 24, 24>>>(x, y, n))

__global__ void one_lane_late(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float sum = i < n ? x[i] : 0;
    if (threadIdx.x != 5) sum += __shfl_down_sync(~0u, sum, 1);  // BUG lane_left_out: deadlock
    __syncthreads();
    if (i < n) y[i] = sum;
}
EXPORT(lane_left_out, one_lane_late<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void asserted(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    assert(i < n);  // BUG assertion_of_the_tail: assertion
    y[i] = x[i];
}
EXPORT(assertion_of_the_tail, asserted<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void __launch_bounds__(64) bound_to_64(
    const float* x, float* y,
    int n) {  // BUG more_than_the_launch_bounds: refused launch
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];
}
EXPORT(more_than_the_launch_bounds, bound_to_64<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void lock_and_keep(const float* x, float* y, int* lock, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    while (atomicCAS(lock, 0, 1) != 0) {  // BUG lock_that_is_kept: deadlock
    }
    if (i < n) y[i] = x[i];
}
extern "C" void lock_that_is_kept(const float* x, float* y, int n) {
    int* lock;
    cudaMalloc(&lock, sizeof(int));
    cudaMemset(lock, 0, sizeof(int));
    lock_and_keep<<<blocks_of(n), kThreads>>>(x, y, lock, n);
    cudaFree(lock);
}

// The last threads have no work in the last round.
__global__ void swap_in_rounds(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x;
    for (int first = 0; first < n; first += kThreads) {
        if (first + (t | 1) >= n) continue;
        tile[t] = x[first + t];
        __syncthreads();  // BUG skipped_by_continue: divergent barrier
        y[first + t] = tile[t ^ 1];
        __syncthreads();
    }
}
EXPORT(skipped_by_continue, swap_in_rounds<<<1, kThreads>>>(x, y, n))

// The same where a function of its own has the barriers.
__device__ void swap_neighbours(float* tile, const float* x, float* y) {
    const int t = threadIdx.x;
    tile[t] = x[t];
    __syncthreads();  // BUG skipped_in_a_function: divergent barrier
    y[t] = tile[t ^ 1];
    __syncthreads();
}
__global__ void swap_by_function(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    for (int first = 0; first < n; first += kThreads) {
        if (first + int(threadIdx.x | 1) >= n) continue;
        swap_neighbours(tile, x + first, y + first);
    }
}
EXPORT(skipped_in_a_function, swap_by_function<<<1, kThreads>>>(x, y, n))

// The other lanes have ended by then. A GPU may wait for them for ever.
__global__ void half_of_a_warp(const float* x, float* y, int n) {
    __shared__ float tile[16];
    const int t = threadIdx.x;
    if (t < 16) {
        tile[t] = x[t];
        __syncthreads();  // BUG barrier_of_half_a_warp: note: divergent barrier
        y[t] = tile[15 - t];
    } else {
        for (int i = t; i < n; i += 16) y[i] = x[i];
    }
}
EXPORT(barrier_of_half_a_warp, half_of_a_warp<<<1, 32>>>(x, y, n))

__global__ void loop_of_uneven_rounds(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += kThreads) {
        y[i] = x[i];
        __syncthreads();  // BUG barrier_of_the_last_round: note: divergent barrier
    }
}
EXPORT(barrier_of_the_last_round, loop_of_uneven_rounds<<<1, kThreads>>>(x, y, n))

// The other warps have ended.
__global__ void first_warps(const float* x, float* y, int n) {
    const int t = threadIdx.x;
    if (t >= 64) {
        for (int i = t; i < n; i += 64) y[i] = x[i];
    } else {
        y[t] = x[t];
        __syncthreads();  // BUG barrier_of_two_warps: note: divergent barrier
    }
}
EXPORT(barrier_of_two_warps, first_warps<<<1, kThreads>>>(x, y, n))

// Each lane reads one that takes part, and names those that have ended.
__global__ void two_apart(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float v = i < n ? x[i] : 0;
    if (i % 2) {
        v += __shfl_xor_sync(0xffffffff, v, 2);  // BUG shuffle_of_odd_lanes: note: inactive lane
        if (i < n) y[i] = v;
    } else if (i < n) {
        y[i] = v;
    }
}
EXPORT(shuffle_of_odd_lanes, two_apart<<<blocks_of(n), kThreads>>>(x, y, n))
