// Threads that keep each other out by locks, or hand on what they know by them: by locks, fences
// and scopes whose races a run in the right order hides, and by those that do.
#include <cuda/atomic>
#include "export.cuh"

constexpr int kBlocks = 4;

struct Words : Cleared<int> {
    Words() : Cleared(64) {}
    float* floats() { return (float*)data + 32; }
};
#define LAUNCH(function, kernel, ...) \
    EXPORT(function, Words words; kernel<<<kBlocks, kThreads>>>(x, y, __VA_ARGS__, n))

__device__ void copy_rest(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (i) y[i] = x[i];
}

// ---- Locks that do not protect

__global__ void some_take_it(const float* x, volatile float* y, int* lock, int n) {
    copy_rest(x, (float*)y, n);
    if (threadIdx.x) return;
    if (blockIdx.x % 2) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        __threadfence();
        y[0] = x[blockIdx.x];
        __threadfence();
        atomicExch(lock, 0);
    } else {
        y[0] = x[blockIdx.x];  // BUG lock_of_one_side: race
    }
}
LAUNCH(lock_of_one_side, some_take_it, words.data)

__global__ void write_afterwards(const float* x, float* y, float* seen, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    const float before = *seen;
    __threadfence();
    atomicExch(lock, 0);
    if (blockIdx.x == kBlocks - 1) *seen = x[0];  // BUG write_after_the_lock: race
    if (blockIdx.x == 0) y[0] = before;
}
LAUNCH(write_after_the_lock, write_afterwards, words.floats(), words.data)

__global__ void two_locks(const float* x, float* y, int* locks, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    int* const lock = locks + blockIdx.x % 2;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    y[0] = x[blockIdx.x];  // BUG another_lock: race
    __threadfence();
    atomicExch(lock, 0);
}
LAUNCH(another_lock, two_locks, words.data)

// ---- Locks without their fences, or with those of another scope

__global__ void taken(const float* x, float* y, volatile float* sum, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    while (atomicExch(lock, 1) != 0) {
    }
    *sum = *sum + x[blockIdx.x];  // BUG lock_taken_without_a_fence: race
    __threadfence();
    atomicExch(lock, 0);
    if (blockIdx.x == 0) y[0] = 0;
}
LAUNCH(lock_taken_without_a_fence, taken, words.floats(), words.data)

__global__ void given_back(const float* x, float* y, float* sum, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *sum += x[blockIdx.x];  // BUG lock_given_back_without_a_fence: race
    atomicExch(lock, 0);
    if (blockIdx.x == 0) y[0] = 0;
}
LAUNCH(lock_given_back_without_a_fence, given_back, words.floats(), words.data)

__global__ void fenced_for_the_block(const float* x, float* y, float* sum, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence_block();
    *sum += x[blockIdx.x];  // BUG lock_with_fences_of_a_block: race
    __threadfence_block();
    atomicExch(lock, 0);
    if (blockIdx.x == 0) y[0] = 0;
}
LAUNCH(lock_with_fences_of_a_block, fenced_for_the_block, words.floats(), words.data)

// Orders instead of fences; the lock is an exchange, and its end a store.
template <cuda::memory_order order>
__global__ void exchanged(const float* x, float* y, float* sum, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    cuda::atomic_ref<int, cuda::thread_scope_device> word(*lock);
    while (word.exchange(1, order)) {
    }
    *sum += x[blockIdx.x];  // BUG lock_that_does_not_acquire: race
    word.store(0, cuda::memory_order_release);
    if (blockIdx.x == 0) y[0] = 0;
}
LAUNCH(lock_that_does_not_acquire, exchanged<cuda::memory_order_relaxed>, words.floats(),
       words.data)
LAUNCH(lock_by_orders, exchanged<cuda::memory_order_acquire>, words.floats(), words.data)

// Warps of a block, whose lock is in shared memory; a fence for the block is enough.
template <bool fences>
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
        sum = sum + x[threadIdx.x];  // BUG lock_of_warps: race
        if (fences) __threadfence_block();
        atomicExch_block(&lock, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) y[0] = sum;
}
EXPORT(lock_of_warps, warps<false><<<1, kThreads>>>(x, y, n))
EXPORT(fenced_lock_of_warps, warps<true><<<1, kThreads>>>(x, y, n))

// ---- Volatile is no order, and no atomic

__global__ void stored_beside(const float* x, float* y, volatile int* word, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    if (blockIdx.x == 0)
        atomicExch((int*)word, 1);
    else
        *word = blockIdx.x;  // BUG store_beside_an_atomic: race
    if (blockIdx.x == 0) y[0] = 0;
}
LAUNCH(store_beside_an_atomic, stored_beside, words.data)

__global__ void told_by_block(const float* x, float* y, volatile float* part, int* flag, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        *part = x[0];
        __threadfence_block();
        atomicExch(flag, 1);
    } else if (blockIdx.x == 1) {
        while (atomicAdd(flag, 0) == 0) {
        }
        y[0] = *part;  // BUG message_with_a_fence_of_a_block: race
    }
}
LAUNCH(message_with_a_fence_of_a_block, told_by_block, words.floats(), words.data)

__global__ void told_too_early(const float* x, float* y, volatile float* part, int* flag, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        const float first = *part;
        __threadfence();
        atomicExch(flag, 1);
        y[0] = first + *part;
    } else if (blockIdx.x == 1) {
        while (atomicExch(flag, 0) == 0) {
        }
        *part = x[0];  // BUG read_after_the_flag: race
    }
}
LAUNCH(read_after_the_flag, told_too_early, words.floats(), words.data)

// All say the same: a note.
__global__ void all_say_so(const float* x, float* y, volatile int* found, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x < 2) *found = 1;  // BUG volatile_of_one_value: note: race
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 0;
}
LAUNCH(volatile_of_one_value, all_say_so, words.data)

// ---- Nothing is to be found in these

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
LAUNCH(count_under_a_lock, counted, words.floats(), words.data + 1, words.floats() + 1, words.data)

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
LAUNCH(lock_of_a_block, for_the_block, words.floats(), words.data)

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
LAUNCH(locks_of_bins, bins, words.floats(), words.data)

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
LAUNCH(lock_by_ptx, acquired_by_ptx, words.floats(), words.data)

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
LAUNCH(queue_with_a_lock, queued, words.floats(), words.data + 1, words.data)

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
LAUNCH(readers_and_a_writer, readers, words.floats(), words.data)

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
LAUNCH(made_once, once, words.floats(), words.data)

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
LAUNCH(one_place_by_turns, by_turns, words.floats(), words.data)

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
LAUNCH(grid_barrier_of_atomics, in_phases, (unsigned*)words.data)

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
LAUNCH(block_that_waits_for_the_next, wait_for_the_next, words.data)

// A volatile word that stops the search early, whenever others see it.
__global__ void search(const float* x, float* y, volatile int* stop, int n) {
    copy_rest(x, y, n);
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 0;
    if (threadIdx.x) return;
    if (*stop) return;
    if (blockIdx.x == 1) *stop = 1;
}
LAUNCH(stopped_early, search, words.data)

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
