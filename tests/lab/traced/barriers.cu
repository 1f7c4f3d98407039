// Lines with nothing but a call that is inlined: barriers, and a function without arguments.

#include <cooperative_groups.h>

__device__ __forceinline__ void meet() { asm volatile("bar.sync 0;"); }

template <typename T>
__global__ void meetings(T* x) {
    const int i = threadIdx.x;
    if (i < 32) {
        const T before = x[i];
        x[i] = before + 1;
    }
    __syncthreads();                                 // here block
    asm volatile("bar.sync 0;");                     // here ptx
    __syncwarp();                                    // here warp
    cooperative_groups::this_thread_block().sync();  // here group
    for (int k = 0; k < 3; k++) {
        x[i] *= 2;
        __syncthreads();  // here loop
    }
    meet();           // here inlined
    __threadfence();  // here fence
    x[i] += T(2);
}

extern "C" void run(float* x) { meetings<<<1, 64>>>(x); }
