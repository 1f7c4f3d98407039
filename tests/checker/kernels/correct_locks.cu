// Correct kernels whose threads keep each other out by locks, or hand on what they know by them:
// the checker must find nothing. Every function takes (const float* x, float* y, int n) with n =
// 1000.

#include <cuda/atomic>

constexpr int kThreads = 128;
constexpr int kBlocks = 4;

struct Words {
    Words() {
        cudaMalloc(&data, 64 * sizeof(int));
        cudaMemset(data, 0, 64 * sizeof(int));
    }
    ~Words() { cudaFree(data); }
    int* data;
    float* floats() { return (float*)data + 32; }
};

__device__ void copy_rest(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (i) y[i] = x[i];
}
__device__ void take(int* lock) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
}
__device__ void give_back(int* lock) {
    __threadfence();
    atomicExch(lock, 0);
}

// The last block to come reads what the others left under the lock, and before it.
__global__ void counted(const float* x, float* y, volatile float* sum, int* count, float* parts,
                        int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    parts[blockIdx.x] = x[blockIdx.x];
    take(lock);
    *sum = *sum + x[blockIdx.x];
    const bool last = ++*count == gridDim.x;
    give_back(lock);
    if (!last) return;
    float all = *sum;
    for (int k = 0; k < gridDim.x; k++) all += parts[k];
    y[0] = all;
}
extern "C" void count_under_a_lock(const float* x, float* y, int n) {
    Words words;
    counted<<<kBlocks, kThreads>>>(
        x, y, words.floats(), words.data + 1, words.floats() + 1, words.data, n);
}

// One thread takes the lock for its block.
__global__ void for_the_block(const float* x, float* y, float* sums, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x == 0) take(lock);
    __syncthreads();
    if (threadIdx.x < 16) sums[threadIdx.x] += x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) give_back(lock);
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 0;
}
extern "C" void lock_of_a_block(const float* x, float* y, int n) {
    Words words;
    for_the_block<<<kBlocks, kThreads>>>(x, y, words.floats(), words.data, n);
}

// Each bin has a lock, and a second one lies within it.
__global__ void bins(const float* x, float* y, float* sums, int* locks, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x >= 4) return;
    const int k = (blockIdx.x + threadIdx.x) % 8;
    bool done = false;
    while (!done) {
        if (atomicCAS(&locks[k], 0, 1) == 0) {
            __threadfence();
            sums[k] += x[threadIdx.x];
            take(&locks[8]);
            sums[8] += x[threadIdx.x];
            give_back(&locks[8]);
            give_back(&locks[k]);
            done = true;
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 0;
}
extern "C" void locks_of_bins(const float* x, float* y, int n) {
    Words words;
    bins<<<kBlocks, kThreads>>>(x, y, words.floats(), words.data, n);
}

// Orders instead of fences; the lock is an exchange, and its end a store.
__global__ void acquired(const float* x, float* y, float* sum, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    cuda::atomic_ref<int, cuda::thread_scope_device> word(*lock);
    while (word.exchange(1, cuda::memory_order_acquire)) {
    }
    *sum += x[blockIdx.x];
    word.store(0, cuda::memory_order_release);
    if (blockIdx.x == 0) y[0] = 0;
}
extern "C" void lock_by_orders(const float* x, float* y, int n) {
    Words words;
    acquired<<<kBlocks, kThreads>>>(x, y, words.floats(), words.data, n);
}

__global__ void acquired_by_ptx(const float* x, float* y, float* sum, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    int found;
    do
        asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1;"
                     : "=r"(found)
                     : "l"(lock)
                     : "memory");
    while (found);
    *sum += x[blockIdx.x];
    asm volatile("st.release.gpu.global.b32 [%0], 0;" ::"l"(lock) : "memory");
    if (blockIdx.x == 0) y[0] = 0;
}
extern "C" void lock_by_ptx(const float* x, float* y, int n) {
    Words words;
    acquired_by_ptx<<<kBlocks, kThreads>>>(x, y, words.floats(), words.data, n);
}

// Warps of a block, and a scope that is enough for them.
__global__ void warps(const float* x, float* y, int n) {
    __shared__ int lock;
    __shared__ volatile float sum;
    if (threadIdx.x == 0) lock = 0, sum = 0;
    __syncthreads();
    copy_rest(x, y, n);
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS_block(&lock, 0, 1) != 0) {
        }
        __threadfence_block();
        sum = sum + x[threadIdx.x];
        __threadfence_block();
        atomicExch_block(&lock, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) y[0] = sum;
}
extern "C" void lock_of_warps(const float* x, float* y, int n) { warps<<<1, kThreads>>>(x, y, n); }

// What is put into a queue was written before the lock was taken, and is read after it.
__global__ void queued(const float* x, float* y, float* values, int* queue, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    if (blockIdx.x < kBlocks - 1) {
        values[blockIdx.x] = x[blockIdx.x];
        take(lock);
        queue[1 + queue[0]++] = blockIdx.x;
        give_back(lock);
    } else {
        float sum = 0;
        for (int got = 0; got < kBlocks - 1;) {
            take(lock);
            const int found = queue[0] ? queue[queue[0]--] : -1;
            give_back(lock);
            if (found >= 0) sum += values[found], got++;
        }
        y[0] = sum;
    }
}
extern "C" void queue_with_a_lock(const float* x, float* y, int n) {
    Words words;
    queued<<<kBlocks, kThreads>>>(x, y, words.floats(), words.data + 1, words.data, n);
}

// Many may read at once, or one write: the word counts the readers.
__global__ void readers(const float* x, float* y, float* value, int* readers, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x % 32) return;
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (atomicCAS(readers, 0, -1) != 0) {
        }
        __threadfence();
        *value = x[0];
        __threadfence();
        atomicExch(readers, 0);
        y[0] = 0;
    } else {
        int found = 0;
        for (;;) {
            const int before = atomicCAS(readers, found, found + 1);
            if (before == found) break;
            found = before < 0 ? 0 : before;
        }
        __threadfence();
        const float seen = *value;
        __threadfence();
        atomicSub(readers, 1);
        if (seen > 1e9f) y[0] = seen;
    }
}
extern "C" void readers_and_a_writer(const float* x, float* y, int n) {
    Words words;
    readers<<<kBlocks, kThreads>>>(x, y, words.floats(), words.data, n);
}

// A word that is claimed, and then says that the rest is there, is no lock.
__global__ void once(const float* x, float* y, float* value, volatile int* state, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    if (atomicCAS((int*)state, 0, 1) == 0) {
        *value = x[0];
        __threadfence();
        *state = 2;
    } else {
        while (*state != 2) {
        }
        __threadfence();
    }
    if (blockIdx.x == 0) y[0] = *value;
}
extern "C" void made_once(const float* x, float* y, int n) {
    Words words;
    once<<<kBlocks, kThreads>>>(x, y, words.floats(), words.data, n);
}

// One that is taken and set back by turns, too.
__global__ void by_turns(const float* x, float* y, float* value, int* full, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x || blockIdx.x > 1) return;
    float sum = 0;
    for (int k = 0; k < 4; k++) {
        if (blockIdx.x == 0) {
            while (atomicAdd(full, 0) != 0) {
            }
            __threadfence();
            *value = x[k];
            __threadfence();
            atomicExch(full, 1);
        } else {
            while (atomicAdd(full, 0) != 1) {
            }
            __threadfence();
            sum += *value;
            __threadfence();
            atomicExch(full, 0);
        }
    }
    if (blockIdx.x == 1) y[0] = sum;
}
extern "C" void one_place_by_turns(const float* x, float* y, int n) {
    Words words;
    by_turns<<<kBlocks, kThreads>>>(x, y, words.floats(), words.data, n);
}

// The whole grid waits for its slowest block, by a counter and a word that changes.
__device__ void grid_barrier(unsigned* count, volatile unsigned* sense) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned before = *sense;
        __threadfence();
        if (atomicAdd(count, 1) == gridDim.x - 1) {
            *count = 0;
            __threadfence();
            *sense = before + 1;
        } else {
            while (*sense == before) {
            }
        }
        __threadfence();
    }
    __syncthreads();
}
__global__ void in_phases(const float* x, float* y, unsigned* words, int n) {
    for (int phase = 0; phase < 3; phase++) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            y[(i + phase * 300) % n] = phase ? y[(i + phase * 300) % n] + 1 : x[i];
        grid_barrier(words, words + 1);
    }
}
extern "C" void grid_barrier_of_atomics(const float* x, float* y, int n) {
    Words words;
    in_phases<<<kBlocks, kThreads>>>(x, y, (unsigned*)words.data, n);
}

// Each block waits for the next one, and the last for none.
__global__ void wait_for_the_next(const float* x, float* y, volatile int* flags, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x == 0 && blockIdx.x + 1 < gridDim.x)
        while (flags[blockIdx.x + 1] == 0) {
        }
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 0;
    __threadfence();
    if (threadIdx.x == 0) flags[blockIdx.x] = 1;
}
extern "C" void block_that_waits_for_the_next(const float* x, float* y, int n) {
    Words words;
    wait_for_the_next<<<kBlocks, kThreads>>>(x, y, words.data, n);
}

// A volatile word that stops the search early, whenever others see it.
__global__ void search(const float* x, float* y, volatile int* stop, int n) {
    copy_rest(x, y, n);
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 0;
    if (threadIdx.x) return;
    if (*stop) return;
    if (blockIdx.x == 1) *stop = 1;
}
extern "C" void stopped_early(const float* x, float* y, int n) {
    Words words;
    search<<<kBlocks, kThreads>>>(x, y, words.data, n);
}

// Whatever was there before, an atomicExch whose value nobody uses writes.
__global__ void exchanged(const float* x, float* y, int* word, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x == 0) atomicExch(word, 1);
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 0;
}
extern "C" void exchange_of_new_memory(const float* x, float* y, int n) {
    int* word;
    cudaMalloc(&word, sizeof(int));
    exchanged<<<kBlocks, kThreads>>>(x, y, word, n);
    cudaFree(word);
}
