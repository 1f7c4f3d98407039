// Planted races that look ordered and are not: by meetings of another warp, by fences and
// atomics of too small a scope, by flags without a fence.
#include <cuda/atomic>
#include "export.cuh"

__device__ float max_of_warp(float value) {
    for (int d = kWarp / 2; d > 0; d /= 2) value = fmaxf(value, __shfl_down_sync(~0u, value, d));
    return value;
}
__device__ float sum_of_warp(float value) {
    for (int d = kWarp / 2; d > 0; d /= 2) value += __shfl_down_sync(~0u, value, d);
    return value;
}

// The shuffles of one warp do not make it wait for others, which still read the maximum.
__global__ void softmax(const float* x, float* y, int n) {
    __shared__ float s[kThreads / kWarp];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    const float value = i < n ? x[i] : -1e30f, greatest = max_of_warp(value);
    if (t % kWarp == 0) s[t / kWarp] = greatest;
    __syncthreads();
    if (t == 0)
        for (int k = 1; k < kThreads / kWarp; k++) s[0] = fmaxf(s[0], s[k]);
    __syncthreads();
    const float e = expf(value - s[0]), sum = sum_of_warp(e);
    if (t % kWarp == 0) s[t / kWarp] = sum;  // BUG sums_over_the_maximum: race
    __syncthreads();
    if (t == 0)
        for (int k = 1; k < kThreads / kWarp; k++) s[0] += s[k];
    __syncthreads();
    if (i < n) y[i] = e / s[0];
}
EXPORT(sums_over_the_maximum, softmax<<<blocks_of(n), kThreads>>>(x, y, n))

// The last write before another warp's atomic is an atomic, too; the clear is still not ordered.
__global__ void clear_and_add(const float* x, float* y, float* total, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i == 0) *total = 0;  // BUG clear_without_a_barrier: race
    const float sum = sum_of_warp(i < n ? x[i] : 0);
    if (threadIdx.x % kWarp == 0) atomicAdd(total, sum);
    if (i < n) y[i] = sum;
}
EXPORT(clear_without_a_barrier,
       clear_and_add<<<blocks_of(n), kThreads>>>(x, y, Cleared<float>().data, n))

__global__ void bins_of_warps(const float* x, float* y, int n) {
    __shared__ int bins[8];
    const int t = threadIdx.x;
    if (t < 8) bins[t] = 0;
    const float sum = sum_of_warp(x[t]);
    if (t % kWarp == 0) atomicAdd(&bins[int(sum) & 7], 1);  // BUG bins_cleared_by_one_warp: race
    __syncthreads();
    for (int i = t; i < n; i += kThreads) y[i] = bins[i % 8];
}
EXPORT(bins_cleared_by_one_warp, bins_of_warps<<<1, kThreads>>>(x, y, n))

// ---- Scopes

__global__ void fenced_for_the_block(const float* x, float* y, float* parts, unsigned* done,
                                     int n) {
    __shared__ bool last;
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (i < n) y[i] = x[i];
    if (t == 0) {
        parts[blockIdx.x] = x[blockIdx.x];
        __threadfence_block();
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0)
        for (int k = 1; k < gridDim.x; k++) {
            parts[0] += parts[k];  // BUG fence_of_a_block: race
        }
}
EXPORT(fence_of_a_block,
       fenced_for_the_block<<<blocks_of(n), kThreads>>>(x, y, Cleared<float>(blocks_of(n)).data,
                                                        Cleared<unsigned>().data, n))

__global__ void added_in_blocks(const float* x, float* y, float* total, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i];
    atomicAdd_block(total, x[i]);  // BUG atomic_of_a_block: race
}
EXPORT(atomic_of_a_block,
       added_in_blocks<<<blocks_of(n), kThreads>>>(x, y, Cleared<float>().data, n))

__global__ void counted_in_blocks(const float* x, float* y, int* count, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    cuda::atomic_ref<int, cuda::thread_scope_block> all(*count);
    y[i] = x[i];
    all.fetch_add(1, cuda::memory_order_relaxed);  // BUG atomic_ref_of_a_block: race
}
EXPORT(atomic_ref_of_a_block,
       counted_in_blocks<<<blocks_of(n), kThreads>>>(x, y, Cleared<int>().data, n))

__global__ void added_by_ptx(const float* x, float* y, int* count, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i];
    asm volatile("red.relaxed.cta.global.add.s32 [%0], 1;" ::"l"(count));  // BUG red_cta: race
}
EXPORT(red_cta, added_by_ptx<<<blocks_of(n), kThreads>>>(x, y, Cleared<int>().data, n))

// ---- Flags

// The flag may be seen before the sum.
__global__ void chain(const float* x, float* y, float* sums, volatile int* flags, int* ticket,
                      int n) {
    __shared__ float before;
    __shared__ int b;
    const int t = threadIdx.x;
    if (t == 0) b = atomicAdd(ticket, 1);
    __syncthreads();
    const int i = b * kThreads + t;
    if (t == 0) {
        before = 0;
        if (b > 0) {
            while (flags[b - 1] == 0) {
            }
            before = sums[b - 1];  // BUG flag_without_a_fence: race
        }
        sums[b] = before + x[i];
        flags[b] = 1;
    }
    __syncthreads();
    if (i < n) y[i] = x[i] + before;
}
EXPORT(flag_without_a_fence,
       chain<<<blocks_of(n), kThreads>>>(x, y, Cleared<float>(blocks_of(n)).data,
                                         Cleared<int>(blocks_of(n)).data, Cleared<int>().data, n))

__global__ void relaxed(const float* x, float* y, float* part, int* flag, int n) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
    const int t = threadIdx.x;
    if (t == 0) {
        *part = x[0];
        ready.store(1, cuda::memory_order_relaxed);
    } else if (t == kWarp) {
        while (ready.load(cuda::memory_order_acquire) == 0) {
        }
        y[0] = *part;  // BUG store_that_does_not_release: race
    }
    for (int i = t; i < n; i += kThreads)
        if (i > 0) y[i] = x[i];
}
EXPORT(store_that_does_not_release,
       relaxed<<<1, kThreads>>>(x, y, Cleared<float>().data, Cleared<int>().data, n))

// volatile makes others see it some time, and waits for nobody.
__global__ void volatile_tree(const float* x, float* y, int n) {
    __shared__ volatile float sums[kThreads];
    const int t = threadIdx.x;
    sums[t] = x[t];
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (t < half) sums[t] = sums[t] + sums[t + half];  // BUG volatile_for_a_barrier: race
    }
    __syncthreads();
    for (int i = t; i < n; i += kThreads) y[i] = sums[0];
}
EXPORT(volatile_for_a_barrier, volatile_tree<<<1, kThreads>>>(x, y, n))

// Two of four warps have told that they are through with the tile, when it is filled anew.
__global__ void two_of_four(const float* x, float* y, volatile int* through, int n) {
    __shared__ float tile[kWarp];
    const int t = threadIdx.x, warp = t / kWarp;
    if (t < kWarp) tile[t] = x[t];
    __syncthreads();
    const float seen = tile[kWarp - 1 - t % kWarp];
    __syncwarp();
    if (t % kWarp == 0) {
        __threadfence_block();
        through[warp] = 1;
    }
    if (warp == 0) {
        while (through[1] == 0) {
        }
        __threadfence_block();
        tile[t] = 0;  // BUG one_warp_not_waited_for: race
    }
    for (int i = t; i < n; i += kThreads) y[i] = seen;
}
EXPORT(one_warp_not_waited_for, two_of_four<<<1, kThreads>>>(x, y, Cleared<int>(4).data, n))
