// cuda::atomic, cuda::barrier, cuda::pipeline and their like.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>

namespace cg = cooperative_groups;
using block_barrier = cuda::barrier<cuda::thread_scope_block>;

#define LAUNCHER(kernel)                                                   \
    extern "C" cudaError_t run_##kernel(int* y, int blocks, int threads) { \
        kernel<<<blocks, threads>>>(y);                                    \
        return cudaGetLastError();                                         \
    }

// ---- Barriers

// Between its arrival and its wait each thread does something else.
__global__ void split(int* y) {
    __shared__ block_barrier barrier;
    __shared__ int tile[256];
    const int t = threadIdx.x, next = (t + 1) % blockDim.x;
    if (t == 0) init(&barrier, blockDim.x);
    cg::this_thread_block().sync();
    for (int turn = 1; turn <= 5; turn++) {
        tile[t] = turn * t;
        block_barrier::arrival_token token = barrier.arrive();
        int own = turn;
        barrier.wait(std::move(token));
        y[t] += tile[next] + own;
        barrier.arrive_and_wait();
    }
}
LAUNCHER(split)

// Each turn one thread leaves, and the others go on without it.
__global__ void dropped(int* y) {
    __shared__ block_barrier barrier;
    __shared__ int left;
    const int t = threadIdx.x;
    if (t == 0) init(&barrier, blockDim.x), left = blockDim.x;
    __syncthreads();
    for (int turn = 0; turn < t; turn++) barrier.arrive_and_wait();
    y[t] = atomicSub(&left, 1);
    barrier.arrive_and_drop();
}
LAUNCHER(dropped)

// A warp produces, the others consume, and phases are told by their parity.
__global__ void parity(int* y) {
    __shared__ block_barrier full, empty;
    __shared__ int value;
    const int t = threadIdx.x, consumers = blockDim.x - 32;
    if (t == 0) init(&full, 1), init(&empty, consumers);
    __syncthreads();
    for (int turn = 0; turn < 6; turn++) {
        const bool odd = turn % 2;
        if (t == 0) {
            empty.wait_parity(!odd);
            value = 100 * turn;
            (void)full.arrive();
        } else if (t >= 32) {
            full.wait_parity(odd);
            y[t] += value;
            (void)empty.arrive();
        }
    }
}
LAUNCHER(parity)

struct Count {
    int* total;
    __device__ void operator()() noexcept { *total += 1; }
};
// A function runs once a phase, before anybody goes on.
__global__ void completion(int* y) {
    using barrier_t = cuda::barrier<cuda::thread_scope_block, Count>;
    __shared__ alignas(barrier_t) char storage[sizeof(barrier_t)];
    __shared__ int total;
    barrier_t& barrier = reinterpret_cast<barrier_t&>(storage);
    if (threadIdx.x == 0) total = 0, new (&barrier) barrier_t(blockDim.x, Count{&total});
    __syncthreads();
    for (int turn = 0; turn < 3; turn++) {
        barrier.arrive_and_wait();
        y[threadIdx.x] = 10 * y[threadIdx.x] + total;
        barrier.arrive_and_wait();
    }
}
LAUNCHER(completion)

// ---- Pipelines

__device__ int* input(int* y) { return y + 4096; }

// Of one thread: two batches are under way while the one before is used.
__global__ void own_pipeline(int* y) {
    __shared__ int tile[3][64];
    const int t = threadIdx.x, turns = 8;
    auto pipe = cuda::make_pipeline();
    for (int next = 0, turn = 0; turn < turns; turn++) {
        for (; next < turns && next < turn + 3; next++) {
            pipe.producer_acquire();
            cuda::memcpy_async(
                &tile[next % 3][t], &input(y)[64 * next + t], cuda::aligned_size_t<4>(4), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        y[64 * turn + t] = tile[turn % 3][t] + 1;
        pipe.consumer_release();
    }
}
LAUNCHER(own_pipeline)

// All threads produce and consume; the block copies as a whole.
__global__ void unified_pipeline(int* y) {
    constexpr int stages = 2, turns = 8;
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    __shared__ alignas(16) int tile[stages][64];
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int next = 0, turn = 0; turn < turns; turn++) {
        for (; next < turns && next < turn + stages; next++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[next % stages], input(y) + 64 * next,
                               cuda::aligned_size_t<16>(256), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        y[64 * turn + threadIdx.x] = tile[turn % stages][63 - threadIdx.x] + 1;
        pipe.consumer_release();
    }
}
LAUNCHER(unified_pipeline)

// The first warp produces for the others.
template <bool by_count>
__device__ void produce_and_consume(int* y) {
    constexpr int stages = 2, turns = 8;
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    __shared__ int tile[stages][64];
    auto block = cg::this_thread_block();
    const bool produces = threadIdx.x < 32;
    const auto role = produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = [&] {
        if constexpr (by_count)
            return cuda::make_pipeline(block, &state, 32);
        else
            return cuda::make_pipeline(block, &state, role);
    }();
    for (int turn = 0; turn < turns; turn++) {
        int* stage = tile[turn % stages];
        if (produces) {
            pipe.producer_acquire();
            for (int i = threadIdx.x; i < 64; i += 32)
                cuda::memcpy_async(stage + i, input(y) + 64 * turn + i, sizeof(int), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            for (int i = threadIdx.x - 32; i < 64; i += blockDim.x - 32)
                y[64 * turn + i] = stage[63 - i] + 1;
            pipe.consumer_release();
        }
    }
}
__global__ void pipeline_of_roles(int* y) { produce_and_consume<false>(y); }
__global__ void pipeline_of_counts(int* y) { produce_and_consume<true>(y); }
LAUNCHER(pipeline_of_roles)
LAUNCHER(pipeline_of_counts)

// A copy arrives at a barrier.
__global__ void copied(int* y) {
    __shared__ block_barrier barrier;
    __shared__ int tile[100];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&barrier, block.size());
    block.sync();
    cuda::memcpy_async(block, tile, input(y) + 1, sizeof tile, barrier);
    barrier.arrive_and_wait();
    for (int i = threadIdx.x; i < 100; i += blockDim.x) y[i] = tile[99 - i];
}
LAUNCHER(copied)

// ---- Atomics

// The first thread spins until all others have come.
__global__ void spinning(int* y) {
    cuda::atomic_ref<int, cuda::thread_scope_block> arrived(y[0]);
    if (threadIdx.x) {
        arrived.fetch_add(1, cuda::std::memory_order_release);
        return;
    }
    while (arrived.load(cuda::std::memory_order_acquire) != int(blockDim.x) - 1) {
    }
    y[1] = arrived.load();
}
LAUNCHER(spinning)

__device__ cuda::atomic<int, cuda::thread_scope_device> lock{0};
// Within its lock a thread waits for its warp's others.
__global__ void locked(int* y) {
    for (bool done = false; !done;) {
        int expected = 0;
        if (lock.compare_exchange_strong(expected, 1, cuda::memory_order_acquire)) {
            const int before = y[0];
            __nanosleep(10);
            y[0] = before + 1;
            lock.store(0, cuda::memory_order_release);
            done = true;
        }
    }
}
LAUNCHER(locked)

// A block waits for the one before it.
__global__ void chained(int* y) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ended(y[0]);
    if (threadIdx.x) return;
    while (ended.load(cuda::memory_order_acquire) < int(blockIdx.x)) {
    }
    y[1 + blockIdx.x] = blockIdx.x ? 2 * y[blockIdx.x] + 1 : 1;
    ended.store(blockIdx.x + 1, cuda::memory_order_release);
}
LAUNCHER(chained)

__global__ void operations(int* y) {
    const int t = threadIdx.x;
    cuda::atomic_ref<int> a(y[0]), b(y[1]), c(y[2]), d(y[3]), e(y[4]), f(y[5]);
    a += t;
    b.fetch_max(t);
    c.fetch_min(-t);
    d |= 1 << t % 20;
    e ^= 1 << t % 3;
    f--;
    auto& real = reinterpret_cast<float&>(y[6]);
    cuda::atomic_ref<float, cuda::thread_scope_device>(real).fetch_add(0.5f);
    __shared__ cuda::std::atomic<unsigned long long> wide;
    if (t == 0) wide = 1ull << 40;
    __syncthreads();
    wide.fetch_sub(1);
    __syncthreads();
    y[7] = int((1ull << 40) - wide);
}
LAUNCHER(operations)

// The same under nvcc's names, of 12.8 on.
__global__ void builtins(int* y) {
    const int t = threadIdx.x;
    const auto relaxed = __NV_ATOMIC_RELAXED;
    __nv_atomic_fetch_add(y, t, relaxed);
    __nv_atomic_max(y + 1, t, relaxed, __NV_THREAD_SCOPE_BLOCK);
    __nv_atomic_min(y + 2, -t, relaxed, __NV_THREAD_SCOPE_DEVICE);
    __nv_atomic_or(y + 3, 1 << t % 20, relaxed);
    __nv_atomic_fetch_xor(y + 4, 1 << t % 3, __NV_ATOMIC_SEQ_CST);
    __nv_atomic_sub(y + 5, 1, relaxed);
    __nv_atomic_add(reinterpret_cast<float*>(y + 6), 0.5, relaxed);
    int old = __nv_atomic_load_n(y + 7, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE);
    while (!__nv_atomic_compare_exchange_n(
        y + 7, &old, old + 1, true, __NV_ATOMIC_ACQ_REL, __NV_ATOMIC_RELAXED)) {
    }
    __nv_atomic_thread_fence(__NV_ATOMIC_SEQ_CST, __NV_THREAD_SCOPE_DEVICE);
    if (t == 0) {
        const int value = 7;
        int before, after;
        __nv_atomic_store(y + 8, &value, __NV_ATOMIC_RELEASE);
        __nv_atomic_exchange(y + 8, &value, &before, relaxed);
        __nv_atomic_store_n(y + 9, before + 1, relaxed);
        __nv_atomic_load(y + 9, &after, relaxed);
        y[10] = __nv_atomic_exchange_n(y + 9, 0, relaxed) + after;
    }
}
LAUNCHER(builtins)

template <class T>
struct Room {
    alignas(T) char bytes[sizeof(T)];
    __device__ T& operator*() { return reinterpret_cast<T&>(bytes); }
};
__global__ void counted(int* y) {
    using semaphore = cuda::binary_semaphore<cuda::thread_scope_block>;
    using latch = cuda::latch<cuda::thread_scope_block>;
    __shared__ Room<semaphore> turn;
    __shared__ Room<latch> all;
    if (threadIdx.x == 0) new (&*turn) semaphore(1), new (&*all) latch(blockDim.x);
    __syncthreads();
    (*turn).acquire();
    y[0] = y[0] + 1;
    (*turn).release();
    (*all).arrive_and_wait();
    y[1 + threadIdx.x] = y[0];
}
LAUNCHER(counted)

#if !PLAYGROUND_CUDA
// ---- What goes wrong

__global__ void deadlocked(int*) {
    __shared__ block_barrier barrier;
    if (threadIdx.x == 0) init(&barrier, blockDim.x + 1);
    __syncthreads();
    barrier.arrive_and_wait();  // WAITS
}
LAUNCHER(deadlocked)

__global__ void overfull(int*) {
    __shared__ block_barrier barrier;
    if (threadIdx.x == 0) init(&barrier, 2);
    __syncthreads();
    if (threadIdx.x < 2) (void)barrier.arrive(threadIdx.x ? 2 : 1);  // ARRIVES
}
LAUNCHER(overfull)
#endif
