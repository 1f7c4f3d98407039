// Atomics, on several blocks at once.

#include "launcher.h"

template <class T>
__global__ void totals(T* y) {
    const T i = T(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&y[0], T(1));
    atomicMax(&y[1], i);
    atomicMin(&y[2], i);
    atomicAnd(&y[3], T(~(T(1) << (threadIdx.x % 8))));
    atomicOr(&y[4], T(1) << (threadIdx.x % 20));
    atomicXor(&y[5], T(1) << (threadIdx.x % 30));
    T old = y[6], assumed;
    do {
        assumed = old;
        old = atomicCAS(&y[6], assumed, assumed + 2);
    } while (old != assumed);
    if (i == 5) y[7] = atomicExch(&y[8], T(77));
}

LAUNCHER(run_totals_int, (int* y), totals<<<40, 96>>>(y))
LAUNCHER(run_totals_unsigned, (int* y), totals<<<40, 96>>>(reinterpret_cast<unsigned*>(y)))
LAUNCHER(run_totals_unsigned_long_long, (int64_t* y),
         totals<<<40, 96>>>(reinterpret_cast<unsigned long long*>(y)))

__global__ void others(int* y, float* f, double* d) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicSub(&y[0], 3);
    atomicInc(reinterpret_cast<unsigned*>(&y[1]), 6u);
    atomicDec(reinterpret_cast<unsigned*>(&y[2]), 6u);
    atomicMax(reinterpret_cast<long long*>(&y[4]), -5LL - i);
    atomicMin(reinterpret_cast<long long*>(&y[6]), -5LL - i);
    atomicAdd(&f[0], 0.5f);
    atomicAdd(&d[0], 0.25);
    if (i == 0) f[1] = atomicExch(&f[2], 3.5f);
    if (i == 0) y[8] = atomicCAS(&y[9], 5, 6);
    if (i == 0) y[10] = atomicCAS(&y[11], 4, 6);
    atomicAdd_block(&y[12], 1);
    atomicAdd_system(&y[13], 2);
}

LAUNCHER(run_others, (int* y, float* f, double* d), others<<<20, 50>>>(y, f, d))

// A lock that the threads of a block take in turn: whoever spins lets the holder go on.
__global__ void locked(int* lock, int* counter) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            const int old = *static_cast<volatile int*>(counter);
            __nanosleep(20);
            *static_cast<volatile int*>(counter) = old + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

LAUNCHER(run_locked, (int* lock, int* counter), locked<<<2, 64>>>(lock, counter))

// The last block to finish adds up what all have written.
__global__ void last_block(const int* x, int* partial, int* y, int* finished) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = x[blockIdx.x] * 2;
        __threadfence();
        last = atomicAdd(finished, 1) == int(gridDim.x) - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int sum = 0;
        for (int i = 0; i < int(gridDim.x); i++) sum += static_cast<volatile int*>(partial)[i];
        *y = sum;
    }
}

extern "C" cudaError_t run_last_block(const int* x, int* partial, int* y, int* finished,
                                      cudaStream_t stream) {
    cudaMemsetAsync(finished, 0, sizeof(int), stream);
    last_block<<<500, 32, 0, stream>>>(x, partial, y, finished);
    return cudaGetLastError();
}
