// wgmma (wgmma.cuh) with a from registers, where an earlier product has left it.
#pragma once

#include "wgmma.cuh"

#if HAS_WGMMA

#define WGMMA_FROM_REGISTERS(N, TYPE, NAMES, ACCUM, A0, A1, A2, A3, B, ADDS, TRANS_B)          \
    asm volatile(                                                                              \
        "{ .reg .pred adds;\n"                                                                 \
        "  setp.ne.b32 adds, %" ADDS                                                           \
        ", 0;\n"                                                                               \
        "  wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" NAMES "}, {%" A0 \
        ", %" A1 ", %" A2 ", %" A3 "}, %" B ", adds, 1, 1, %" TRANS_B "; }"                    \
        : ACCUM                                                                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(adds)), "n"(kTransB))

// accum = a b^T, or if `adds` accum += a b^T, over 16 of k. a: 16 rows per warp, as in mma.cuh;
// accumulators of 16 columns, rounded to pairs, have this layout. a must not change until the
// product is complete.
template <class T, bool kTransB>
__device__ void wgmma(float (&accum)[8], const uint32_t (&a)[4], uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA_FROM_REGISTERS(
            "16", "f16", NAMES_8, ACCUM_8(0), "8", "9", "10", "11", "12", "13", "14");
    } else {
        WGMMA_FROM_REGISTERS(
            "16", "bf16", NAMES_8, ACCUM_8(0), "8", "9", "10", "11", "12", "13", "14");
    }
}
template <class T, bool kTransB>
__device__ void wgmma(float (&accum)[16], const uint32_t (&a)[4], uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA_FROM_REGISTERS(
            "32", "f16", NAMES_16, ACCUM_16(0), "16", "17", "18", "19", "20", "21", "22");
    } else {
        WGMMA_FROM_REGISTERS(
            "32", "bf16", NAMES_16, ACCUM_16(0), "16", "17", "18", "19", "20", "21", "22");
    }
}
template <class T, bool kTransB>
__device__ void wgmma(float (&accum)[32], const uint32_t (&a)[4], uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA_FROM_REGISTERS(
            "64", "f16", NAMES_32, ACCUM_32(0), "32", "33", "34", "35", "36", "37", "38");
    } else {
        WGMMA_FROM_REGISTERS(
            "64", "bf16", NAMES_32, ACCUM_32(0), "32", "33", "34", "35", "36", "37", "38");
    }
}
template <class T, bool kTransB>
__device__ void wgmma(float (&accum)[64], const uint32_t (&a)[4], uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA_FROM_REGISTERS(
            "128", "f16", NAMES_64, ACCUM_64(0), "64", "65", "66", "67", "68", "69", "70");
    } else {
        WGMMA_FROM_REGISTERS(
            "128", "bf16", NAMES_64, ACCUM_64(0), "64", "65", "66", "67", "68", "69", "70");
    }
}
template <class T, bool kTransB>
__device__ void wgmma(float (&accum)[128], const uint32_t (&a)[4], uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA_FROM_REGISTERS(
            "256", "f16", NAMES_128, ACCUM_128(0), "128", "129", "130", "131", "132", "133", "134");
    } else {
        WGMMA_FROM_REGISTERS("256", "bf16", NAMES_128, ACCUM_128(0), "128", "129", "130", "131",
                             "132", "133", "134");
    }
}

#undef WGMMA_FROM_REGISTERS

#endif
