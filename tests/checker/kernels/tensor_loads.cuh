// Rows of x in tensor memory, and loads of 4 columns of them.
#pragma once
#include <cuda_fp16.h>
#include "tensor_memory.cuh"

constexpr int columns_read = 8;

DEVICE void load_4(float (&v)[4], unsigned from) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(from));
}
// Each thread puts numbers of its own into its lane.
#define BEGIN_LOADS                                                       \
    __shared__ unsigned first_column;                                     \
    if (threadIdx.x < 32) allocate(&first_column, 32);                    \
    __syncthreads();                                                      \
    const unsigned first = lane_of(first_column);                         \
    for (int i = 0; i < columns_read; i++)                                \
        STORE(first_column + i, __float_as_uint(x[threadIdx.x + 8 * i])); \
    stored();                                                             \
    [[maybe_unused]] unsigned word = 0;
#define END_LOADS    \
    __syncthreads(); \
    if (threadIdx.x < 32) deallocate(first_column, 32);
