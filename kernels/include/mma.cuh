// Warp-level matrix products (mma.sync in PTX): 16 rows of a by 8 rows of b over 32 bytes of k,
// accumulated in float: 16 elements of 16-bit floats, 8 of tf32 (a float with 10 bits of fraction),
// or 32 of float8. Products of doubles take 64 bytes of k, which are 8 elements. Also the
// instructions that load their tiles. They need compute capability 8.0, those of float8 8.9.
//
// Lane l has these (row, column) of the accumulators [16, 8], and of a and b in words of 4 bytes,
// in this order:
//
//   accum   (l / 4, l % 4 * 2), the one right of it; and both 8 rows below
//   a       (l / 4, l % 4), 8 rows below; both 4 words of k further
//   b       row l / 4: word l % 4 of k; 4 words further
//
// A tile in shared memory has rows of 128 bytes in the 128-byte swizzle of tma.cuh.
#pragma once

#include "cp_async.cuh"
#include "float8.h"
#include "swizzle.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Copies `elements`, at most 16 bytes, from an aligned address, and fills up with zeros.
template <class T>
__device__ void cp_async_or_zeros(void* shared, const T* global, int elements) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(elements * int(sizeof(T)))
                 : "memory");
}

// Four matrices of 8 rows of 16 bytes: lanes 8 * i to 8 * i + 7 say where the rows of matrix i are.
// Lane l gets two neighbours of row l / 4 of each; transposed, of column l / 4.
__device__ inline void ldmatrix(uint32_t (&to)[4], const void* row, bool transposed) {
    if (transposed) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row))
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row))
                     : "memory");
    }
}

// Transposes a warp's 8 x 8 matrix of 16-bit elements: lane t gets two neighbours of row t / 4,
// from column t % 4 * 2 on.
__device__ inline uint32_t transposed_8x8(uint32_t pair) {
    uint32_t transposed;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
    return transposed;
}

// Rounds a float to the nearest tf32, ties away from zero. mma.sync itself ignores the bits that a
// tf32 does not have, which rounds towards zero.
__device__ inline uint32_t rounded_to_tf32(uint32_t bits) {
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
    return rounded;
}

#define MMA(SHAPE, TYPE)                                                                \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE                \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(accum[0]), "+f"(accum[1]), "+f"(accum[2]), "+f"(accum[3])       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// accum += a b^T
template <class T>
__device__ void mma(float (&accum)[4], const uint32_t (&a)[4], const uint32_t* b) {
    if constexpr (std::is_same_v<T, float>) {
        MMA("m16n8k8", "tf32");
    } else if constexpr (std::is_same_v<T, Float8>) {
        MMA("m16n8k32", "e4m3");
    } else if constexpr (IsHalf<T>::value) {
        MMA("m16n8k16", "f16");
    } else {
        MMA("m16n8k16", "bf16");
    }
}

#undef MMA

// The same of doubles, over 8 of k: products are added one after the other, each rounded.
__device__ inline void mma(double (&accum)[4], const double (&a)[4], const double (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3},"
        " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(accum[0]), "+d"(accum[1]), "+d"(accum[2]), "+d"(accum[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else  // 8 rows of a over 4 of k at a time
    for (int k = 0; k < 2; ++k)
        for (int row = 0; row < 2; ++row)
            asm volatile(
                "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(accum[2 * row]), "+d"(accum[2 * row + 1])
                : "d"(a[2 * k + row]), "d"(b[k]));
#endif
}

#endif
