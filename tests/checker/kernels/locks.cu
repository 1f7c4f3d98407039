// Planted races of locks, fences and scopes that a run in the right order hides. Every function
// takes (const float* x, float* y, int n) with n = 1000; a line that is wrong ends with BUG, the
// function and what the checker says.

#include <cuda/atomic>

constexpr int kThreads = 128;
constexpr int kBlocks = 4;

struct Words {
    Words() {
        cudaMalloc(&data, 16 * sizeof(int));
        cudaMemset(data, 0, 16 * sizeof(int));
    }
    ~Words() { cudaFree(data); }
    int* data;
};

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
extern "C" void lock_of_one_side(const float* x, float* y, int n) {
    Words words;
    some_take_it<<<kBlocks, kThreads>>>(x, y, words.data, n);
}

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
extern "C" void write_after_the_lock(const float* x, float* y, int n) {
    Words words;
    write_afterwards<<<kBlocks, kThreads>>>(x, y, (float*)words.data + 1, words.data, n);
}

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
extern "C" void another_lock(const float* x, float* y, int n) {
    Words words;
    two_locks<<<kBlocks, kThreads>>>(x, y, words.data, n);
}

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
extern "C" void lock_taken_without_a_fence(const float* x, float* y, int n) {
    Words words;
    taken<<<kBlocks, kThreads>>>(x, y, (float*)words.data + 1, words.data, n);
}

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
extern "C" void lock_given_back_without_a_fence(const float* x, float* y, int n) {
    Words words;
    given_back<<<kBlocks, kThreads>>>(x, y, (float*)words.data + 1, words.data, n);
}

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
extern "C" void lock_with_fences_of_a_block(const float* x, float* y, int n) {
    Words words;
    fenced_for_the_block<<<kBlocks, kThreads>>>(x, y, (float*)words.data + 1, words.data, n);
}

__global__ void relaxed(const float* x, float* y, float* sum, int* lock, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x) return;
    cuda::atomic_ref<int, cuda::thread_scope_device> word(*lock);
    while (word.exchange(1, cuda::memory_order_relaxed)) {
    }
    *sum += x[blockIdx.x];  // BUG lock_that_does_not_acquire: race
    word.store(0, cuda::memory_order_release);
    if (blockIdx.x == 0) y[0] = 0;
}
extern "C" void lock_that_does_not_acquire(const float* x, float* y, int n) {
    Words words;
    relaxed<<<kBlocks, kThreads>>>(x, y, (float*)words.data + 1, words.data, n);
}

// Two warps of a block, whose lock is in shared memory.
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
        atomicExch_block(&lock, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) y[0] = sum;
}
extern "C" void lock_of_warps(const float* x, float* y, int n) { warps<<<1, kThreads>>>(x, y, n); }

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
extern "C" void store_beside_an_atomic(const float* x, float* y, int n) {
    Words words;
    stored_beside<<<kBlocks, kThreads>>>(x, y, words.data, n);
}

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
extern "C" void message_with_a_fence_of_a_block(const float* x, float* y, int n) {
    Words words;
    told_by_block<<<kBlocks, kThreads>>>(x, y, (float*)words.data + 1, words.data, n);
}

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
extern "C" void read_after_the_flag(const float* x, float* y, int n) {
    Words words;
    told_too_early<<<kBlocks, kThreads>>>(x, y, (float*)words.data + 1, words.data, n);
}

// All say the same: a note.
__global__ void all_say_so(const float* x, float* y, volatile int* found, int n) {
    copy_rest(x, y, n);
    if (threadIdx.x < 2) *found = 1;  // BUG volatile_of_one_value: note: race
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 0;
}
extern "C" void volatile_of_one_value(const float* x, float* y, int n) {
    Words words;
    all_say_so<<<kBlocks, kThreads>>>(x, y, words.data, n);
}
