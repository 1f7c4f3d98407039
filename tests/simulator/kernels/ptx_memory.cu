// Inline PTX in which several threads take part: atomic sums, messages, barriers with numbers.
#include <stdint.h>

__device__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// y: a sum, a ring of 10, a number that a lock guards, and the same three of a block, summed up.
__global__ void counters(unsigned* y) {
    __shared__ unsigned mine[3], lock;
    if (threadIdx.x < 3) mine[threadIdx.x] = 0;
    if (threadIdx.x == 3) lock = 0;
    __syncthreads();
    const uint32_t at = shared_address(mine);
    unsigned old;
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(y), "r"(threadIdx.x) : "memory");
    asm volatile("atom.global.inc.u32 %0, [%1], 9;" : "=r"(old) : "l"(y + 1) : "memory");
    asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(at), "r"(threadIdx.x) : "memory");
    asm volatile("atom.shared.inc.u32 %0, [%1 + 4], 9;" : "=r"(old) : "r"(at) : "memory");
    bool done = false;
    while (!done) {
        asm volatile("atom.acquire.cta.shared.cas.b32 %0, [%1], 0, 1;"
                     : "=r"(old)
                     : "r"(shared_address(&lock))
                     : "memory");
        if (old == 0) {
            mine[2] = mine[2] + 1;
            asm volatile("st.release.cta.shared.u32 [%0], 0;" ::"r"(shared_address(&lock))
                         : "memory");
            done = true;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 0; i < 3; i++) atomicAdd(&y[3 + i], mine[i]);
}
extern "C" cudaError_t run_counters(int* y, int blocks, int threads) {
    counters<<<blocks, threads>>>(reinterpret_cast<unsigned*>(y));
    return cudaGetLastError();
}

// Warp 1 waits for what warp 0 writes, by loads of each kind.
__global__ void messages(int* y, int* flags) {
    __shared__ int values[3], flag;
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (lane) return;
    if (threadIdx.x == 0) {
        values[0] = 11;
        asm volatile("st.release.cta.shared.b32 [%0], 1;" ::"r"(shared_address(&flag)) : "memory");
        values[1] = 22;
        asm volatile("st.release.gpu.global.b32 [%0], 1;" ::"l"(flags) : "memory");
        values[2] = 33;
        asm volatile("membar.cta; st.volatile.global.b32 [%0], 1;" ::"l"(flags + 1) : "memory");
    } else {
        int seen;
        do
            asm volatile("ld.acquire.cta.shared.b32 %0, [%1];"
                         : "=r"(seen)
                         : "r"(shared_address(&flag))
                         : "memory");
        while (!seen);
        y[0] = values[0];
        do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(seen) : "l"(flags) : "memory");
        while (!seen);
        y[1] = values[1];
        do
            asm volatile("ld.volatile.global.b32 %0, [%1];"
                         : "=r"(seen)
                         : "l"(flags + 1)
                         : "memory");
        while (!seen);
        asm volatile("fence.acq_rel.cta;" ::: "memory");
        y[2] = values[2];
    }
}
extern "C" cudaError_t run_messages(int* y, int* flags) {
    messages<<<1, 64>>>(y, flags);
    return cudaGetLastError();
}

// Two warps write what two others read, round by round, and neither waits for its own.
__global__ void produces(int* y, int rounds) {
    __shared__ int values[64];
    const int i = threadIdx.x % 64;
    if (threadIdx.x < 64) {
        for (int round = 0; round < rounds; round++) {
            if (round) asm volatile("bar.sync 2, 128;" ::: "memory");
            values[i] = 100 * round + i;
            asm volatile("bar.arrive 1, 128;" ::: "memory");
        }
    } else {
        for (int round = 0; round < rounds; round++) {
            asm volatile("barrier.sync 1, 128;" ::: "memory");
            y[64 * round + i] = values[63 - i];
            if (round + 1 < rounds) asm volatile("barrier.arrive 2, 128;" ::: "memory");
        }
    }
}
extern "C" cudaError_t run_produces(int* y, int rounds) {
    produces<<<1, 128>>>(y, rounds);
    return cudaGetLastError();
}

// Some threads return before the others meet, and the last warp is half empty: whole warps count.
__global__ void leaves(int* y) {
    __shared__ int values[80];
    if (threadIdx.x >= 8 && threadIdx.x < 32) return;
    values[threadIdx.x] = threadIdx.x;
    asm volatile("barrier.sync 1, 96;" ::: "memory");
    int sum = 0;
    for (int i = 0; i < 80; i++)
        if (i < 8 || i >= 32) sum += values[i];
    y[threadIdx.x] = sum;
    __syncwarp();
    // And some when they have come.
    asm volatile("barrier.sync 2, 96;" ::: "memory");
    if (threadIdx.x < 32) {
        values[threadIdx.x] = 100;
        asm volatile("barrier.arrive 3, 96;" ::: "memory");
        return;
    }
    if (threadIdx.x % 2) return;
    asm volatile("barrier.sync 3, 96;" ::: "memory");
    y[threadIdx.x] += values[threadIdx.x % 8];
}
extern "C" cudaError_t run_leaves(int* y) {
    leaves<<<1, 80>>>(y);
    return cudaGetLastError();
}
