// Products of a warpgroup (wgmma.cuh) of floats, over 8 of k. Of a float the tensor cores look at
// the bits of a tf32 alone, which has 10 behind the point: they round towards zero unless the rest
// is 0.
#pragma once

#include "wgmma.cuh"

#if HAS_WGMMA

// sums += a b^T, or sums = a b^T, over 8 of k: a from registers, as mma.cuh has it, 16 rows a warp,
// and b a tile with a row of 128 bytes for each of its rows: the next 8 of k are at descriptor + 2.
// a must stay as it is until the product is done. There is no instruction for transposed tiles.
#define WGMMA_TF32_FROM_REGISTERS(N, NAMES, SUMS, A0, A1, A2, A3, B, ADDS)                     \
    asm volatile(                                                                              \
        "{ .reg .pred adds;\n"                                                                 \
        "  setp.ne.b32 adds, %" ADDS                                                           \
        ", 0;\n"                                                                               \
        "  wgmma.mma_async.sync.aligned.m64n" N "k8.f32.tf32.tf32 {" NAMES "}, {%" A0 ", %" A1 \
        ", %" A2 ", %" A3 "}, %" B ", adds, 1, 1; }"                                           \
        : SUMS                                                                                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(adds)))

__device__ inline void wgmma_tf32(float (&sums)[64], const uint32_t (&a)[4], uint64_t b,
                                  bool adds) {
    WGMMA_TF32_FROM_REGISTERS("128", NAMES_64, SUMS_64(0), "64", "65", "66", "67", "68", "69");
}
__device__ inline void wgmma_tf32(float (&sums)[128], const uint32_t (&a)[4], uint64_t b,
                                  bool adds) {
    WGMMA_TF32_FROM_REGISTERS(
        "256", NAMES_128, SUMS_128(0), "128", "129", "130", "131", "132", "133");
}

#undef WGMMA_TF32_FROM_REGISTERS

#endif
