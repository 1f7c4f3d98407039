// Floating point of 6 bits in a byte: __nv_fp6_e2m3 and __nv_fp6_e3m2, in twos and fours too.
#pragma once
#include "cuda_fp8.h"

typedef __nv_fp8_storage_t __nv_fp6_storage_t;
typedef __nv_fp8x2_storage_t __nv_fp6x2_storage_t;
typedef __nv_fp8x4_storage_t __nv_fp6x4_storage_t;
enum __nv_fp6_interpretation_t { __NV_E2M3, __NV_E3M2 };
#define __CUDA_FP6_TYPES_EXIST__
#define __CUDA_FP6_H__

namespace simulator {
SIMULATOR_INLINE unsigned char to_fp6(double x, __nv_fp6_interpretation_t kind,
                                      cudaRoundMode rounding) {
    const bool to_nearest = rounding == cudaRoundNearest;
    return kind == __NV_E2M3 ? to_small<E2M3>(x, true, to_nearest)
                             : to_small<E3M2>(x, true, to_nearest);
}
}  // namespace simulator

using __nv_fp6_e2m3 = simulator::SmallFloat<simulator::E2M3>;
using __nv_fp6x2_e2m3 = simulator::SmallFloats<simulator::E2M3, __nv_fp6x2_storage_t>;
using __nv_fp6x4_e2m3 = simulator::SmallFloats<simulator::E2M3, __nv_fp6x4_storage_t>;
using __nv_fp6_e3m2 = simulator::SmallFloat<simulator::E3M2>;
using __nv_fp6x2_e3m2 = simulator::SmallFloats<simulator::E3M2, __nv_fp6x2_storage_t>;
using __nv_fp6x4_e3m2 = simulator::SmallFloats<simulator::E3M2, __nv_fp6x4_storage_t>;

#define SIMULATOR_CVT_FP6(from, from2, T, T2, x_, y_)                   \
    SIMULATOR_INLINE __nv_fp6_storage_t __nv_cvt_##from##_to_fp6(       \
        T v, __nv_fp6_interpretation_t kind, cudaRoundMode rounding) {  \
        return simulator::to_fp6(x_(v), kind, rounding);                \
    }                                                                   \
    SIMULATOR_INLINE __nv_fp6x2_storage_t __nv_cvt_##from2##_to_fp6x2(  \
        T2 v, __nv_fp6_interpretation_t kind, cudaRoundMode rounding) { \
        return simulator::to_fp6(x_(y_(v.x)), kind, rounding) |         \
               simulator::to_fp6(x_(y_(v.y)), kind, rounding) << 8;     \
    }
SIMULATOR_CVT_FP6(double, double2, double, double2, double, double)
SIMULATOR_CVT_FP6(float, float2, float, float2, double, double)
SIMULATOR_CVT_FP6(halfraw, halfraw2, __half_raw, __half2_raw, __half, __ushort_as_half)
SIMULATOR_CVT_FP6(bfloat16raw, bfloat16raw2, __nv_bfloat16_raw, __nv_bfloat162_raw, __nv_bfloat16,
                  __ushort_as_bfloat16)
#undef SIMULATOR_CVT_FP6

SIMULATOR_INLINE __half_raw __nv_cvt_fp6_to_halfraw(__nv_fp6_storage_t x,
                                                    __nv_fp6_interpretation_t kind) {
    return __half(kind == __NV_E2M3 ? simulator::from_small<simulator::E2M3>(x)
                                    : simulator::from_small<simulator::E3M2>(x));
}
SIMULATOR_INLINE __half2_raw __nv_cvt_fp6x2_to_halfraw2(__nv_fp6x2_storage_t x,
                                                        __nv_fp6_interpretation_t kind) {
    return {__nv_cvt_fp6_to_halfraw(x & 0xff, kind).x, __nv_cvt_fp6_to_halfraw(x >> 8, kind).x};
}
