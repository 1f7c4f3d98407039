// Products of a warpgroup (wgmma.cuh) of floats of one byte, over 32 of k.
//
// Hopper sums them in some 14 bits: of a sum over thousands of k, digits are lost that a result of
// 16 bits still shows. So such sums are taken over few k, and added up in float by the threads.
#pragma once

#include "float8.h"
#include "wgmma.cuh"

#if HAS_WGMMA

// The instruction for one N; A, B, ADDS: the numbers of its operands behind the sums.
#define WGMMA_FLOAT8(N, NAMES, SUMS, A, B, ADDS)                                             \
    asm volatile(                                                                            \
        "{ .reg .pred adds;\n"                                                               \
        "  setp.ne.b32 adds, %" ADDS                                                         \
        ", 0;\n"                                                                             \
        "  wgmma.mma_async.sync.aligned.m64n" N "k32.f32.e4m3.e4m3 {" NAMES "}, %" A ", %" B \
        ", adds, 1, 1; }"                                                                    \
        : SUMS                                                                               \
        : "l"(a), "l"(b), "r"(int(adds)))

// sums = a b^T, or sums += a b^T, over 32 of k, of tiles with a row of 128 bytes for each row of a
// and b: the next 32 of k are at descriptor + 2.
__device__ inline void wgmma_float8(float (&sums)[32], uint64_t a, uint64_t b, bool adds) {
    WGMMA_FLOAT8("64", NAMES_32, SUMS_32(0), "32", "33", "34");
}
__device__ inline void wgmma_float8(float (&sums)[64], uint64_t a, uint64_t b, bool adds) {
    WGMMA_FLOAT8("128", NAMES_64, SUMS_64(0), "64", "65", "66");
}

#undef WGMMA_FLOAT8

#endif
