// Planted races.
#include <cuda/barrier>
#include "export.cuh"

// A neighbour's element is read before it is known to be there.
__global__ void shift(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[t] = i < n ? x[i] : 0;
    if (i < n) y[i] = tile[(t + 1) % kThreads];  // BUG missing_barrier: race
}
EXPORT(missing_barrier, shift<<<blocks_of(n), kThreads>>>(x, y, n))

// A thread fills its place in the tile anew once it has its own neighbour's value; whoever wants
// that place has only arrived.
__global__ void one_barrier(const float* x, float* y, int n) {
    __shared__ cuda::barrier<cuda::thread_scope_block> filled;
    __shared__ float tile[kThreads];
    const int t = threadIdx.x;
    if (t == 0) init(&filled, kThreads);
    __syncthreads();
    for (int first = 0; first < n; first += kThreads) {
        tile[t] = first + t < n ? x[first + t] : 0;  // BUG barrier_of_one_phase: race
        filled.arrive_and_wait();
        if (first + t < n) y[first + t] = tile[(t + 1) % kThreads];
    }
}
EXPORT(barrier_of_one_phase, one_barrier<<<1, kThreads>>>(x, y, n))

// Between arrival and wait nobody knows what the others have done.
__global__ void too_early(const float* x, float* y, int n) {
    __shared__ cuda::barrier<cuda::thread_scope_block> filled;
    __shared__ float tile[kThreads];
    const int t = threadIdx.x;
    if (t == 0) init(&filled, kThreads);
    __syncthreads();
    tile[t] = x[t];
    auto token = filled.arrive();
    y[t] = tile[(t + 1) % kThreads];  // BUG read_before_the_wait: race
    filled.wait(std::move(token));
}
EXPORT(read_before_the_wait, too_early<<<1, kThreads>>>(x, y, n))

// The tree needs a barrier for each of its levels, not one for all.
__global__ void tree(const float* x, float* y, int n) {
    __shared__ float sums[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    sums[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (t < half) sums[t] += sums[t + half];  // BUG barrier_outside_the_loop: race
    }
    if (i < n) y[i] = sums[t];
}
EXPORT(barrier_outside_the_loop, tree<<<blocks_of(n), kThreads>>>(x, y, n))

// A tile is refilled while slower threads still read it.
__global__ void tiles(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x;
    for (int first = 0; first < n; first += kThreads) {
        const int i = first + t;
        tile[t] = i < n ? x[i] : 0;  // BUG tile_refilled_too_early: race
        __syncthreads();
        if (i < n) y[i] = tile[kThreads - 1 - t];
    }
}
EXPORT(tile_refilled_too_early, tiles<<<1, kThreads>>>(x, y, n))

// Since Volta the lanes of a warp need __syncwarp, volatile or not.
__global__ void warp_tail(const float* x, float* y, int n) {
    __shared__ volatile float sums[kWarp];
    const int t = threadIdx.x;
    sums[t] = x[t];
    __syncwarp();
    for (int half = kWarp / 2; half > 0; half /= 2) {
        if (t < half) sums[t] = sums[t] + sums[t + half];  // BUG warp_without_syncwarp: race
    }
    for (int i = t; i < n; i += kWarp) y[i] = x[i];
}
EXPORT(warp_without_syncwarp, warp_tail<<<1, kWarp>>>(x, y, n))

// __syncwarp orders the lanes of one warp, and no more.
__global__ void reverse_by_warps(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[t] = i < n ? x[i] : 0;
    __syncwarp();
    if (i < n) y[i] = tile[kThreads - 1 - t];  // BUG syncwarp_across_warps: race
}
EXPORT(syncwarp_across_warps, reverse_by_warps<<<blocks_of(n), kThreads>>>(x, y, n))

// All blocks add to one number, as if they were alone.
__global__ void sum_of_blocks(const float* x, float* y, int n) {
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) y[i] = x[i];
    __syncthreads();
    if (threadIdx.x == 0) y[0] += x[blockIdx.x];  // BUG blocks_add_without_atomics: race
}
EXPORT(blocks_add_without_atomics, sum_of_blocks<<<4, kThreads>>>(x, y, n))

// A histogram without atomics: threads of one block meet in a bin.
__global__ void histogram(const float* x, float* y, int n) {
    __shared__ int bins[16];
    const int t = threadIdx.x;
    if (t < 16) bins[t] = 0;
    __syncthreads();
    for (int i = t; i < n; i += kThreads)
        bins[int(x[i] * 100) & 15]++;  // BUG histogram_without_atomics: race
    __syncthreads();
    for (int i = t; i < n; i += kThreads) y[i] = bins[i & 15];
}
EXPORT(histogram_without_atomics, histogram<<<1, kThreads>>>(x, y, n))

// The counter is atomic for those who add, and not for the one who reads it.
__global__ void count(const float* x, float* y, int n) {
    __shared__ int positive;
    const int t = threadIdx.x;
    if (t == 0) positive = 0;
    __syncthreads();
    for (int i = t; i < n; i += kThreads) {
        if (x[i] > 0) atomicAdd(&positive, 1);
        y[i] = x[i];
    }
    if (t == 0) y[0] = positive;  // BUG plain_read_of_a_counter: race
}
EXPORT(plain_read_of_a_counter, count<<<1, kThreads>>>(x, y, n))

// The last block adds up what the others left, without a fence between their writes and the ticket.
__device__ unsigned ticket;
__global__ void last_block(const float* x, float* y, int n) {
    __shared__ bool last;
    const int t = threadIdx.x;
    for (int i = blockIdx.x * kThreads + t; i < n; i += gridDim.x * kThreads) y[i] = x[i];
    __syncthreads();
    if (t == 0) last = atomicInc(&ticket, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (last && t == 0) {
        float sum = 0;
        for (int i = 0; i < n; ++i) sum += y[i];  // BUG ticket_without_a_fence: race
        y[0] = sum;
    }
}
EXPORT(ticket_without_a_fence, last_block<<<4, kThreads>>>(x, y, n))

// In place, a neighbour may have been overwritten by another block.
__global__ void smooth_in_place(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];
    __syncthreads();
    if (i + 1 < n) y[i] = (y[i] + y[i + 1]) / 2;  // BUG neighbour_of_another_block: race
}
EXPORT(neighbour_of_another_block, smooth_in_place<<<blocks_of(n), kThreads>>>(x, y, n))

// A fence orders one thread's own accesses, and waits for nobody.
__global__ void fenced(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[t] = i < n ? x[i] : 0;
    __threadfence_block();
    if (i < n) y[i] = tile[kThreads - 1 - t];  // BUG fence_for_a_barrier: race
}
EXPORT(fence_for_a_barrier, fenced<<<blocks_of(n), kThreads>>>(x, y, n))

// Each half of the warp meets by itself, and then reads the other's elements.
__global__ void halves(const float* x, float* y, int n) {
    __shared__ float tile[kWarp];
    const int t = threadIdx.x, i = blockIdx.x * kWarp + t;
    tile[t] = i < n ? x[i] : 0;
    __syncwarp(t < 16 ? 0x0000ffff : 0xffff0000);
    if (i < n) y[i] = tile[kWarp - 1 - t];  // BUG syncwarp_of_half_a_warp: race
}
EXPORT(syncwarp_of_half_a_warp, halves<<<(n + kWarp - 1) / kWarp, kWarp>>>(x, y, n))

// The buffers were to be exchanged from turn to turn.
__global__ void one_of_two(const float* x, float* y, int n) {
    __shared__ float tile[2][kThreads];
    const int t = threadIdx.x, turn = 0;
    for (int first = 0; first < n; first += kThreads) {
        if (first + t < n) tile[turn][t] = x[first + t];  // BUG buffers_never_exchanged: race
        __syncthreads();
        const int other = first + kThreads - 1 - t;
        if (other < n) y[other] = tile[turn][kThreads - 1 - t];
    }
}
EXPORT(buffers_never_exchanged, one_of_two<<<1, kThreads>>>(x, y, n))

// Who is to leave the result behind?
__global__ void all_write(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i > 0 && i < n) y[i] = x[i];
    if (threadIdx.x < 4) y[0] = threadIdx.x;  // BUG four_write_one_element: race
}
EXPORT(four_write_one_element, all_write<<<blocks_of(n), kThreads>>>(x, y, n))

// Whoever finds a positive element says so. All say the same, which is no harm on any GPU, but the
// checker leaves it to the reader.
__global__ void any_positive(const float* x, float* y, int n) {
    __shared__ bool found;
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (t == 0) found = false;
    __syncthreads();
    if (i < n && x[i] > 0) found = true;  // BUG all_write_the_same: note: race
    __syncthreads();
    if (i < n) y[i] = found;
}
EXPORT(all_write_the_same, any_positive<<<blocks_of(n), kThreads>>>(x, y, n))

// Most write the same, and one does not.
__global__ void one_disagrees(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i > 0 && i < n) y[i] = x[i];
    if (i < n) y[0] = i == 700 ? 2 : 1;  // BUG most_write_the_same: race
}
EXPORT(most_write_the_same, one_disagrees<<<blocks_of(n), kThreads>>>(x, y, n))

// The broadcast needs a barrier as the tree does.
__global__ void told(const float* x, float* y, int n) {
    __shared__ float first;
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (t == 0) first = x[blockIdx.x];
    if (i < n) y[i] = first;  // BUG broadcast_without_a_barrier: race
}
EXPORT(broadcast_without_a_barrier, told<<<blocks_of(n), kThreads>>>(x, y, n))

// A lock keeps others out, but without a fence they may read what was there before.
__device__ int lock;
__global__ void locked(const float* x, float* y, int n) {
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) {
        if (i) y[i] = x[i];
    }
    if (threadIdx.x == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {
        }
        y[0] += x[blockIdx.x];  // BUG lock_without_a_fence: race
        atomicExch(&lock, 0);
    }
}
EXPORT(lock_without_a_fence, locked<<<4, kThreads>>>(x, y, n))

// The sum is not used in the end, so a compiler drops the read; the source is wrong all the same.
__global__ void unused_sum(const float* x, float* y, int n) {
    __shared__ float sums[kWarp];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (t < kWarp) sums[t] = x[t];
    __syncthreads();
    if (t == kThreads - 1) sums[kWarp - 1] = n;
    const float before = sums[kWarp - 1] + t;  // BUG read_that_is_not_used: race
    __syncthreads();
    if (i < n) y[i] = sums[kWarp - 1];
}
EXPORT(read_that_is_not_used, unused_sum<<<blocks_of(n), kThreads>>>(x, y, n))
