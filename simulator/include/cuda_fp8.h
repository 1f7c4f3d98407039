// Floating point of 8 bits: __nv_fp8_e4m3, __nv_fp8_e5m2 and the powers of two __nv_fp8_e8m0, in
// twos and fours too.
//
// With __NV_NOSAT what is too large gives infinity in e5m2, and NaN in e4m3 and e8m0, which have no
// infinity.
#pragma once
#include "device_types.h"
#include "simulator/small_floats.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
#define __CUDA_FP8_TYPES_EXIST__
#define __CUDA_FP8_H__

namespace simulator {
SIMULATOR_INLINE unsigned char to_fp8(float x, __nv_saturation_t saturation,
                                      __nv_fp8_interpretation_t kind) {
    const bool is_finite = saturation == __NV_SATFINITE;
    return kind == __NV_E4M3 ? to_small<E4M3>(x, is_finite) : to_small<E5M2>(x, is_finite);
}
SIMULATOR_INLINE unsigned char to_fp8(double x, __nv_saturation_t saturation,
                                      __nv_fp8_interpretation_t kind) {
    const bool is_finite = saturation == __NV_SATFINITE;
    return kind == __NV_E4M3 ? to_small_of_double<E4M3>(x, is_finite)
                             : to_small_of_double<E5M2>(x, is_finite);
}
template <class T>
SIMULATOR_INLINE unsigned short to_fp8(T x, T y, __nv_saturation_t saturation,
                                       __nv_fp8_interpretation_t kind) {
    return to_fp8(x, saturation, kind) | to_fp8(y, saturation, kind) << 8;
}

// 2^(code - 127); 255 is NaN. The sign of x does not count.
SIMULATOR_INLINE unsigned char to_e8m0(double x, __nv_saturation_t saturation, bool up) {
    if (x != x) return 0xff;
    const long long bits = __double_as_longlong(fabs(x));
    const bool is_power = (bits & ((1ll << 52) - 1)) == 0;
    const long long code = (bits >> 52) - 1023 + 127 + (up && !is_power);
    const bool is_infinite = x - x != 0;
    if (is_infinite || (up && code > 0xfe)) return saturation == __NV_SATFINITE ? 0xfe : 0xff;
    return code < 0 ? 0 : code > 0xfe ? 0xfe : code;
}
SIMULATOR_INLINE float from_e8m0(unsigned char code) {
    return code == 0xff ? __int_as_float(0x7fff0000) : float(power_of_two(code - 127));
}

struct UE8M0 {
    static constexpr int bits = 8;
};
template <>
SIMULATOR_INLINE unsigned char to_small<UE8M0>(double x, bool, bool) {
    return to_e8m0(x, __NV_SATFINITE, true);
}
template <>
SIMULATOR_INLINE unsigned char to_small_of_double<UE8M0>(double x, bool) {
    return to_e8m0(x, __NV_SATFINITE, true);
}
template <>
SIMULATOR_INLINE float from_small<UE8M0>(unsigned char code) {
    return from_e8m0(code);
}
}  // namespace simulator

using __nv_fp8_e4m3 = simulator::SmallFloat<simulator::E4M3>;
using __nv_fp8_e5m2 = simulator::SmallFloat<simulator::E5M2>;
using __nv_fp8_e8m0 = simulator::SmallFloat<simulator::UE8M0>;
using __nv_fp8x2_e4m3 = simulator::SmallFloats<simulator::E4M3, __nv_fp8x2_storage_t>;
using __nv_fp8x2_e5m2 = simulator::SmallFloats<simulator::E5M2, __nv_fp8x2_storage_t>;
using __nv_fp8x4_e4m3 = simulator::SmallFloats<simulator::E4M3, __nv_fp8x4_storage_t>;
using __nv_fp8x4_e5m2 = simulator::SmallFloats<simulator::E5M2, __nv_fp8x4_storage_t>;
using __nv_fp8x2_e8m0 = simulator::SmallFloats<simulator::UE8M0, __nv_fp8x2_storage_t>;
using __nv_fp8x4_e8m0 = simulator::SmallFloats<simulator::UE8M0, __nv_fp8x4_storage_t>;

// What the constructors come down to, with a choice of what becomes of large numbers.
#define SIMULATOR_CVT_FP8(from, from2, T, T2, x_, y_)                         \
    SIMULATOR_INLINE __nv_fp8_storage_t __nv_cvt_##from##_to_fp8(             \
        T v, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {  \
        return simulator::to_fp8(x_(v), saturation, kind);                    \
    }                                                                         \
    SIMULATOR_INLINE __nv_fp8x2_storage_t __nv_cvt_##from2##_to_fp8x2(        \
        T2 v, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) { \
        return simulator::to_fp8(x_(y_(v.x)), x_(y_(v.y)), saturation, kind); \
    }
SIMULATOR_CVT_FP8(double, double2, double, double2, double, double)
SIMULATOR_CVT_FP8(float, float2, float, float2, float, float)
SIMULATOR_CVT_FP8(halfraw, halfraw2, __half_raw, __half2_raw, __half, __ushort_as_half)
SIMULATOR_CVT_FP8(bfloat16raw, bfloat16raw2, __nv_bfloat16_raw, __nv_bfloat162_raw, __nv_bfloat16,
                  __ushort_as_bfloat16)
#undef SIMULATOR_CVT_FP8

SIMULATOR_INLINE __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x,
                                                    __nv_fp8_interpretation_t kind) {
    const float number = kind == __NV_E4M3 ? simulator::from_small<simulator::E4M3>(x)
                                           : simulator::from_small<simulator::E5M2>(x);
    return number == number ? __half(number) : __ushort_as_half(0x7fff);
}
SIMULATOR_INLINE __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x,
                                                        __nv_fp8_interpretation_t kind) {
    return {__nv_cvt_fp8_to_halfraw(x & 0xff, kind).x, __nv_cvt_fp8_to_halfraw(x >> 8, kind).x};
}

#define SIMULATOR_CVT_E8M0(from, from2, T, T2, x_, y_)                             \
    SIMULATOR_INLINE __nv_fp8_storage_t __nv_cvt_##from##_to_e8m0(                 \
        T v, __nv_saturation_t saturation, cudaRoundMode rounding) {               \
        return simulator::to_e8m0(x_(v), saturation, rounding == cudaRoundPosInf); \
    }                                                                              \
    SIMULATOR_INLINE __nv_fp8x2_storage_t __nv_cvt_##from2##_to_e8m0x2(            \
        T2 v, __nv_saturation_t saturation, cudaRoundMode rounding) {              \
        const bool up = rounding == cudaRoundPosInf;                               \
        return simulator::to_e8m0(x_(y_(v.x)), saturation, up) |                   \
               simulator::to_e8m0(x_(y_(v.y)), saturation, up) << 8;               \
    }
SIMULATOR_CVT_E8M0(double, double2, double, double2, double, double)
SIMULATOR_CVT_E8M0(float, float2, float, float2, double, double)
SIMULATOR_CVT_E8M0(bfloat16raw, bfloat162raw, __nv_bfloat16_raw, __nv_bfloat162_raw, __nv_bfloat16,
                   __ushort_as_bfloat16)
#undef SIMULATOR_CVT_E8M0
SIMULATOR_INLINE __nv_bfloat16_raw __nv_cvt_e8m0_to_bf16raw(__nv_fp8_storage_t x) {
    return __nv_bfloat16(simulator::from_e8m0(x));
}
SIMULATOR_INLINE __nv_bfloat162_raw __nv_cvt_e8m0x2_to_bf162raw(__nv_fp8x2_storage_t x) {
    return {__nv_cvt_e8m0_to_bf16raw(x & 0xff).x, __nv_cvt_e8m0_to_bf16raw(x >> 8).x};
}
