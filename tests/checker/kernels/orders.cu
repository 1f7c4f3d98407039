// What is ordered, and what only looks so: by meetings of a warp, fences, atomics and their scopes,
// flags, locks and lists.
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

// ---- As it should be, and in two kernels without what makes it so

// ---- Loops around atomicCAS, as the programming guide has them: the first read is a plain one.

__device__ double add_by_cas(double* address, double value) {
    auto* bits = reinterpret_cast<unsigned long long*>(address);
    unsigned long long old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}
__global__ void sum_of_doubles(const float* x, float* y, double* sum, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    add_by_cas(sum, x[i]);
    y[i] = x[i];
}
EXPORT(double_by_cas, sum_of_doubles<<<blocks_of(n), kThreads>>>(x, y, Cleared<double>().data, n))

__device__ void max_by_cas(float* address, float value) {
    int* bits = reinterpret_cast<int*>(address);
    int old = *bits;
    while (__int_as_float(old) < value) {
        const int assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(value));
        if (old == assumed) break;
    }
}
__global__ void greatest(const float* x, float* y, int n) {
    __shared__ float most;
    if (threadIdx.x == 0) most = -2;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kThreads) max_by_cas(&most, x[i]);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kThreads) y[i] = most;
}
EXPORT(maximum_by_cas, greatest<<<1, kThreads>>>(x, y, n))

struct Node {
    Node* next;
    float value;
};
template <class Head>
__global__ void push(const float* x, float* y, Node* nodes, Head* head, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    Node* const mine = nodes + i;
    mine->value = x[i];
    unsigned long long old;
    do {
        old = *head;
        mine->next = reinterpret_cast<Node*>(old);
        __threadfence();
    } while (atomicCAS(const_cast<unsigned long long*>(head), old,
                       reinterpret_cast<unsigned long long>(mine)) != old);
    y[i] = x[i];
}
__global__ void walk(float* y, unsigned long long* head) {
    float sum = 0;
    for (const Node* it = reinterpret_cast<Node*>(*head); it; it = it->next) sum += it->value;
    y[0] = sum;
}
extern "C" void list_with_a_plain_head(const float* x, float* y, int n) {
    Cleared<Node> nodes(n);
    Cleared<unsigned long long> head;
    push<<<blocks_of(n), kThreads>>>(x, y, nodes.data, head.data, n);
    walk<<<1, 1>>>(y, head.data);
}
EXPORT(list_with_a_volatile_head, push<volatile unsigned long long>
       <<<blocks_of(n), kThreads>>>(x, y, Cleared<Node>(n).data, Cleared<unsigned long long>().data,
                                    n))

// ---- Locks

__global__ void unlocked_by_a_store(const float* x, float* y, int* lock, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i > 0 && i < n) y[i] = x[i];
    if (threadIdx.x) return;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    y[0] = x[blockIdx.x];
    __threadfence();
    *static_cast<volatile int*>(lock) = 0;
}
EXPORT(lock_opened_by_a_volatile_store,
       unlocked_by_a_store<<<blocks_of(n), kThreads>>>(x, y, Cleared<int>().data, n))

__global__ void tickets(const float* x, float* y, unsigned* next, volatile unsigned* serving,
                        int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i > 0 && i < n) y[i] = x[i];
    if (threadIdx.x) return;
    const unsigned mine = atomicAdd(next, 1);
    while (*serving != mine) {
    }
    __threadfence();
    y[0] = x[blockIdx.x];
    __threadfence();
    *serving = mine + 1;
}
EXPORT(ticket_lock, tickets<<<blocks_of(n), kThreads>>>(x, y, Cleared<unsigned>().data,
                                                        Cleared<unsigned>().data, n))

// ---- Flags

__device__ float scan_of_block(float* s, float value) {
    const int t = threadIdx.x;
    s[t] = value;
    __syncthreads();
    for (int d = 1; d < kThreads; d *= 2) {
        const float left = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += left;
        __syncthreads();
    }
    return s[t];
}

// Without fences a flag may be seen before the sum.
template <bool fences>
__global__ void chain(const float* x, float* y, float* sums, volatile int* flags, int* ticket,
                      int n) {
    __shared__ float s[kThreads], before;
    __shared__ int b;
    const int t = threadIdx.x;
    if (t == 0) b = atomicAdd(ticket, 1);
    __syncthreads();
    const int i = b * kThreads + t;
    const float sum = scan_of_block(s, i < n ? x[i] : 0);
    if (t == kThreads - 1) {
        before = 0;
        if (b > 0) {
            while (flags[b - 1] == 0) {
            }
            if (fences) __threadfence();
            before = sums[b - 1];  // BUG flag_without_a_fence: race
        }
        sums[b] = before + sum;
        if (fences) __threadfence();
        flags[b] = 1;
    }
    __syncthreads();
    if (i < n) y[i] = sum + before;
}
EXPORT(chained_scan, chain<true>
       <<<blocks_of(n), kThreads>>>(x, y, Cleared<float>(blocks_of(n)).data,
                                    Cleared<int>(blocks_of(n)).data, Cleared<int>().data, n))
EXPORT(flag_without_a_fence, chain<false>
       <<<blocks_of(n), kThreads>>>(x, y, Cleared<float>(blocks_of(n)).data,
                                    Cleared<int>(blocks_of(n)).data, Cleared<int>().data, n))

template <cuda::memory_order order>
__global__ void told(const float* x, float* y, float* part, int* flag, int n) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
    const int t = threadIdx.x;
    if (t == 0) {
        *part = x[0];
        ready.store(1, order);
    } else if (t == kWarp) {
        while (ready.load(cuda::memory_order_acquire) == 0) {
        }
        y[0] = *part;  // BUG store_that_does_not_release: race
    }
    for (int i = t; i < n; i += kThreads)
        if (i > 0) y[i] = x[i];
}
EXPORT(store_that_releases, told<cuda::memory_order_release>
       <<<1, kThreads>>>(x, y, Cleared<float>().data, Cleared<int>().data, n))
EXPORT(store_that_does_not_release, told<cuda::memory_order_relaxed>
       <<<1, kThreads>>>(x, y, Cleared<float>().data, Cleared<int>().data, n))

// A block's own sum comes with flag 1, that of all up to it with flag 2: lane 0 looks back, and its
// warp knows then what it has learnt.
__global__ void look_back(const float* x, float* y, float* own, float* all, volatile int* flags,
                          int* ticket, int n) {
    __shared__ float s[kThreads], before;
    __shared__ int b;
    const int t = threadIdx.x;
    if (t == 0) b = atomicAdd(ticket, 1);
    __syncthreads();
    const int i = b * kThreads + t;
    const float sum = scan_of_block(s, i < n ? x[i] : 0);
    if (t == kThreads - 1) {
        (b ? own : all)[b] = sum;
        __threadfence();
        flags[b] = b ? 1 : 2;
    }
    if (t < kWarp) {
        float left = 0;
        for (int k = b - 1; k >= 0; k--) {
            int flag = 0;
            if (t == 0)
                while ((flag = flags[k]) == 0) {
                }
            flag = __shfl_sync(~0u, flag, 0);
            __threadfence();
            left += (flag == 2 ? all : own)[k];
            if (flag == 2) break;
        }
        if (t == 0) before = left;
    }
    __syncthreads();
    if (b && t == kThreads - 1) {
        all[b] = before + sum;
        __threadfence();
        flags[b] = 2;
    }
    if (i < n) y[i] = sum + before;
}
EXPORT(decoupled_look_back,
       look_back<<<blocks_of(n), kThreads>>>(
           x, y, Cleared<float>(blocks_of(n)).data, Cleared<float>(blocks_of(n)).data,
           Cleared<int>(blocks_of(n)).data, Cleared<int>().data, n))

// What block 0 tells the last one it has learnt from the others: they come in a row.
__global__ void handed_on(const float* x, float* y, float* parts, int* flags, int* ticket, int n) {
    __shared__ int b;
    const int t = threadIdx.x;
    if (t == 0) b = atomicAdd(ticket, 1);
    __syncthreads();
    if (t == 0) {
        parts[b] = x[b];
        if (b > 0)
            while (atomicAdd(&flags[b - 1], 0) == 0) {
            }
        __threadfence();
        if (b == gridDim.x - 1)
            for (int k = 0; k < gridDim.x; k++) y[k] = parts[k];
        atomicExch(&flags[b], 1);
    }
    const int i = b * kThreads + t;
    if (i >= gridDim.x && i < n) y[i] = x[i];
}
EXPORT(flags_in_a_row,
       handed_on<<<blocks_of(n), kThreads>>>(x, y, Cleared<float>(blocks_of(n)).data,
                                             Cleared<int>(blocks_of(n)).data, Cleared<int>().data,
                                             n))

// Warp 0 produces, warp 1 consumes, and both use two places by turns.
__global__ void produce(const float* x, float* y, int n) {
    __shared__ float place[2][kWarp];
    __shared__ volatile int filled, emptied;
    const int t = threadIdx.x, lane = t % kWarp;
    if (t == 0) filled = emptied = 0;
    __syncthreads();
    for (int k = 0; k * kWarp < n; k++) {
        const int i = k * kWarp + lane;
        if (t < kWarp) {
            while (emptied < k - 1) {
            }
            __threadfence_block();
            place[k % 2][lane] = i < n ? x[i] : 0;
            __threadfence_block();
            __syncwarp();
            if (lane == 0) filled = k + 1;
        } else {
            while (filled < k + 1) {
            }
            __threadfence_block();
            if (i < n) y[i] = place[k % 2][lane];
            __threadfence_block();
            __syncwarp();
            if (lane == 0) emptied = k + 1;
        }
        __syncwarp();
    }
}
extern "C" void producer_and_consumer(const float* x, float* y, int n) {
    produce<<<1, 2 * kWarp>>>(x, y, n < 5 * kWarp ? n : 5 * kWarp);  // spinning takes long here
}

__global__ void released_by_ptx(const float* x, float* y, float* parts, int* done, int n) {
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (i > 0 && i < n) y[i] = x[i];
    if (t) return;
    int before;
    parts[blockIdx.x] = x[i];
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(done)
                 : "memory");
    if (before < gridDim.x - 1) return;
    float sum = 0;
    for (int k = 0; k < gridDim.x; k++) sum += parts[k];
    y[0] = sum;
}
EXPORT(last_block_by_ptx,
       released_by_ptx<<<blocks_of(n), kThreads>>>(x, y, Cleared<float>(blocks_of(n)).data,
                                                   Cleared<int>().data, n))

// Fences of the block, and atomics of the block, are enough within one.
__global__ void within_a_block(const float* x, float* y, int n) {
    __shared__ float parts[kThreads / kWarp];
    __shared__ unsigned done;
    const int t = threadIdx.x, warp = t / kWarp, lane = t % kWarp;
    if (t == 0) done = 0;
    __syncthreads();
    float sum = x[t];
    for (int d = kWarp / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    unsigned before = 0;
    if (lane == 0) {
        parts[warp] = sum;
        __threadfence_block();
        before = atomicAdd_block(&done, 1);
    }
    before = __shfl_sync(~0u, before, 0);
    if (before == kThreads / kWarp - 1) {
        __threadfence_block();
        float total = 0;
        for (float part : parts) total += part;
        for (int i = lane; i < n; i += kWarp) y[i] = total;
    }
}
EXPORT(last_warp_of_a_block, within_a_block<<<1, kThreads>>>(x, y, n))
