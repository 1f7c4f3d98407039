// wgmma (wgmma.cuh) of float8, over 32 of k.
//
// Hopper accumulates them in some 14 bits: sums over thousands of k lose digits that a 16-bit
// result still shows. So the accumulators cover few k, and threads promote them to float sums.
#pragma once

#include "float8.h"
#include "wgmma.cuh"

#if HAS_WGMMA

// The instruction for one N. A, B, ADDS: the numbers of the operands after the accumulators.
#define WGMMA_FLOAT8(N, NAMES, ACCUM, A, B, ADDS)                                            \
    asm volatile(                                                                            \
        "{ .reg .pred adds;\n"                                                               \
        "  setp.ne.b32 adds, %" ADDS                                                         \
        ", 0;\n"                                                                             \
        "  wgmma.mma_async.sync.aligned.m64n" N "k32.f32.e4m3.e4m3 {" NAMES "}, %" A ", %" B \
        ", adds, 1, 1; }"                                                                    \
        : ACCUM                                                                              \
        : "l"(a), "l"(b), "r"(int(adds)))

// accum = a b^T, or if `adds` accum += a b^T, over 32 of k, for tiles with 128 bytes for each row
// of a and b: the next 32 of k are at descriptor + 2.
__device__ inline void wgmma_float8(float (&accum)[8], uint64_t a, uint64_t b, bool adds) {
    WGMMA_FLOAT8("16", NAMES_8, ACCUM_8(0), "8", "9", "10");
}
__device__ inline void wgmma_float8(float (&accum)[16], uint64_t a, uint64_t b, bool adds) {
    WGMMA_FLOAT8("32", NAMES_16, ACCUM_16(0), "16", "17", "18");
}
__device__ inline void wgmma_float8(float (&accum)[32], uint64_t a, uint64_t b, bool adds) {
    WGMMA_FLOAT8("64", NAMES_32, ACCUM_32(0), "32", "33", "34");
}
__device__ inline void wgmma_float8(float (&accum)[64], uint64_t a, uint64_t b, bool adds) {
    WGMMA_FLOAT8("128", NAMES_64, ACCUM_64(0), "64", "65", "66");
}

#undef WGMMA_FLOAT8

#endif
