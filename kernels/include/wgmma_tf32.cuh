// wgmma (wgmma.cuh) of floats as tf32, over 8 of k. Tensor cores ignore the bits that a tf32 does
// not have (it keeps 10 of the fraction), which rounds towards zero.
#pragma once

#include "wgmma.cuh"

#if HAS_WGMMA

// accum += a b^T, or accum = a b^T, over 8 of k: a from registers, 16 rows per warp as in mma.cuh,
// and b a tile with 128 bytes for each row: the next 8 of k are at descriptor + 2. a must not
// change until the product is complete. There is no instruction for transposed tiles.
#define WGMMA_TF32_FROM_REGISTERS(N, NAMES, ACCUM, A0, A1, A2, A3, B, ADDS)                    \
    asm volatile(                                                                              \
        "{ .reg .pred adds;\n"                                                                 \
        "  setp.ne.b32 adds, %" ADDS                                                           \
        ", 0;\n"                                                                               \
        "  wgmma.mma_async.sync.aligned.m64n" N "k8.f32.tf32.tf32 {" NAMES "}, {%" A0 ", %" A1 \
        ", %" A2 ", %" A3 "}, %" B ", adds, 1, 1; }"                                           \
        : ACCUM                                                                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(adds)))

__device__ inline void wgmma_tf32(float (&accum)[64], const uint32_t (&a)[4], uint64_t b,
                                  bool adds) {
    WGMMA_TF32_FROM_REGISTERS("128", NAMES_64, ACCUM_64(0), "64", "65", "66", "67", "68", "69");
}
__device__ inline void wgmma_tf32(float (&accum)[128], const uint32_t (&a)[4], uint64_t b,
                                  bool adds) {
    WGMMA_TF32_FROM_REGISTERS(
        "256", NAMES_128, ACCUM_128(0), "128", "129", "130", "131", "132", "133");
}

#undef WGMMA_TF32_FROM_REGISTERS

#endif
