// Products of a warp: 16 rows of a by 8 rows of b over 32 bytes of k, summed in float (mma.sync in
// PTX): 16 elements of 16-bit floats, 8 of tf32, which is a float with 10 bits behind the point, or
// 32 floats of one byte. Products of doubles take 64 bytes of k, which are 8 elements. Here is also
// what loads their tiles. GPUs have these products from compute capability 8.0 on, those of one
// byte from 8.9 on.
//
// Lane l has of the sums [16, 8], and of a and b, in words of 4 bytes, the (row, column) in this
// order:
//
//   sums    (l / 4, l % 4 * 2), the one right of it; and both 8 rows below
//   a       (l / 4, l % 4), 8 rows below; both 4 words of k further
//   b       row l / 4: word l % 4 of k; 4 words further
//
// A tile in shared memory has rows of 128 bytes in the 128-byte swizzle of tma.cuh.
#pragma once

#include "cp_async.cuh"
#include "float8.h"
#include "swizzle.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Copies `elements`, of 16 bytes at most, from a multiple of 16 bytes, and zeros behind them.
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

// A warp's 8 x 8 matrix of 16-bit elements, turned: lane t has two neighbours of row t / 4, from
// column t % 4 * 2 on.
__device__ inline uint32_t transposed_8x8(uint32_t pair) {
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}

// The nearest tf32 of a float; of two the one that is larger without its sign. Bits that a tf32
// does not have are not looked at by mma.sync: it would round towards zero.
__device__ inline uint32_t rounded_to_tf32(uint32_t bits) {
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
    return rounded;
}

#define MMA(SHAPE, TYPE)                                                                \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE                \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// sums += a b^T
template <class T>
__device__ void mma(float (&sums)[4], const uint32_t (&a)[4], const uint32_t* b) {
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

// The same of doubles, each a word of 8 bytes, over 8 of k: one product after the other, rounded.
__device__ inline void mma(double (&sums)[4], const double (&a)[4], const double (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3},"
        " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(sums[0]), "+d"(sums[1]), "+d"(sums[2]), "+d"(sums[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else  // 8 rows of a over 4 of k at a time
    for (int k = 0; k < 2; ++k)
        for (int row = 0; row < 2; ++row)
            asm volatile(
                "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(sums[2 * row]), "+d"(sums[2 * row + 1])
                : "d"(a[2 * k + row]), "d"(b[k]));
#endif
}

#endif
