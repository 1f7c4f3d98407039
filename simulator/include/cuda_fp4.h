// Floating point of 4 bits: __nv_fp4_e2m1, in twos, which share a byte, and fours too.
#pragma once
#include "cuda_fp6.h"

typedef __nv_fp8_storage_t __nv_fp4_storage_t;
typedef __nv_fp8_storage_t __nv_fp4x2_storage_t;
typedef __nv_fp8x2_storage_t __nv_fp4x4_storage_t;
enum __nv_fp4_interpretation_t { __NV_E2M1 };
#define __CUDA_FP4_TYPES_EXIST__
#define __CUDA_FP4_H__

namespace simulator {
SIMULATOR_INLINE unsigned char to_fp4(double x, __nv_fp4_interpretation_t, cudaRoundMode rounding) {
    const bool to_nearest = rounding == cudaRoundNearest;
    return to_small<E2M1>(x, true, to_nearest);
}
}  // namespace simulator

using __nv_fp4_e2m1 = simulator::SmallFloat<simulator::E2M1>;
using __nv_fp4x2_e2m1 = simulator::SmallFloats<simulator::E2M1, __nv_fp4x2_storage_t>;
using __nv_fp4x4_e2m1 = simulator::SmallFloats<simulator::E2M1, __nv_fp4x4_storage_t>;

#define SIMULATOR_CVT_FP4(from, from2, T, T2, x_, y_)                   \
    SIMULATOR_INLINE __nv_fp4_storage_t __nv_cvt_##from##_to_fp4(       \
        T v, __nv_fp4_interpretation_t kind, cudaRoundMode rounding) {  \
        return simulator::to_fp4(x_(v), kind, rounding);                \
    }                                                                   \
    SIMULATOR_INLINE __nv_fp4x2_storage_t __nv_cvt_##from2##_to_fp4x2(  \
        T2 v, __nv_fp4_interpretation_t kind, cudaRoundMode rounding) { \
        return simulator::to_fp4(x_(y_(v.x)), kind, rounding) |         \
               simulator::to_fp4(x_(y_(v.y)), kind, rounding) << 4;     \
    }
SIMULATOR_CVT_FP4(double, double2, double, double2, double, double)
SIMULATOR_CVT_FP4(float, float2, float, float2, double, double)
SIMULATOR_CVT_FP4(halfraw, halfraw2, __half_raw, __half2_raw, __half, __ushort_as_half)
SIMULATOR_CVT_FP4(bfloat16raw, bfloat16raw2, __nv_bfloat16_raw, __nv_bfloat162_raw, __nv_bfloat16,
                  __ushort_as_bfloat16)
#undef SIMULATOR_CVT_FP4

SIMULATOR_INLINE __half_raw __nv_cvt_fp4_to_halfraw(__nv_fp4_storage_t x,
                                                    __nv_fp4_interpretation_t) {
    return __half(simulator::from_small<simulator::E2M1>(x));
}
SIMULATOR_INLINE __half2_raw __nv_cvt_fp4x2_to_halfraw2(__nv_fp4x2_storage_t x,
                                                        __nv_fp4_interpretation_t kind) {
    return {__nv_cvt_fp4_to_halfraw(x & 0xf, kind).x, __nv_cvt_fp4_to_halfraw(x >> 4, kind).x};
}
