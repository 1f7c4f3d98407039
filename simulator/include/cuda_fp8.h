// Floating point of 8 bits: __nv_fp8_e4m3 and __nv_fp8_e5m2, in twos and fours too. They only
// convert: arithmetic is done in half, bfloat16 or float.
//
// Rounding is to nearest, ties to even, and once. What is too large gives the greatest number with
// __NV_SATFINITE, as all constructors have it; with __NV_NOSAT it gives infinity in e5m2, and NaN
// in e4m3, which has no infinity.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
#define __CUDA_FP8_TYPES_EXIST__
#define __CUDA_FP8_H__

namespace simulator {

constexpr unsigned char fp8_nan = 0x7f;

struct E4M3 {
    static constexpr auto interpretation = __NV_E4M3;
    static constexpr int fraction = 3, bias = 7;
    static constexpr unsigned greatest = 0x7e, overflow = fp8_nan;
};
struct E5M2 {
    static constexpr auto interpretation = __NV_E5M2;
    static constexpr int fraction = 2, bias = 15;
    static constexpr unsigned greatest = 0x7b, overflow = 0x7c;
};

// 2^exponent, of a number that is not subnormal.
SIMULATOR_INLINE double power_of_two(int exponent) {
    return __longlong_as_double((long long)(exponent + 1023) << 52);
}

template <class Format>
unsigned char to_fp8(double x, __nv_saturation_t saturation) {
    if (x != x) return fp8_nan;
    constexpr int least = 1 - Format::bias;  // the exponent of subnormal numbers
    const unsigned sign = __double_as_longlong(x) < 0 ? 0x80 : 0;
    const double size = fabs(x);
    const int at = int(__double_as_longlong(size) >> 52) - 1023;
    const int exponent = at < least ? least : at < 20 ? at : 20;
    // In units of the last digit; a carry goes over into the exponent.
    const double digits = rint(size * power_of_two(Format::fraction - exponent));
    const unsigned code =
        digits < 64 ? unsigned(digits) + (unsigned(exponent - least) << Format::fraction) : 0xff;
    if (code <= Format::greatest) return sign | code;
    return sign | (saturation == __NV_SATFINITE ? Format::greatest : Format::overflow);
}

template <class Format>
float from_fp8(unsigned char code) {
    const unsigned size = code & 0x7f;
    float x;
    if (size > Format::greatest) {
        x = size == Format::overflow && size != fp8_nan ? __builtin_inff() : __builtin_nanf("");
    } else {
        const int exponent = size >> Format::fraction;
        const int digits =
            (size & ((1 << Format::fraction) - 1)) | (exponent ? 1 << Format::fraction : 0);
        const int unit = (exponent ? exponent : 1) - Format::bias - Format::fraction;
        x = float(digits * power_of_two(unit));
    }
    return code & 0x80 ? -x : x;
}

SIMULATOR_INLINE unsigned char to_fp8(double x, __nv_saturation_t saturation,
                                      __nv_fp8_interpretation_t kind) {
    return kind == __NV_E4M3 ? to_fp8<E4M3>(x, saturation) : to_fp8<E5M2>(x, saturation);
}
SIMULATOR_INLINE unsigned short to_fp8(double x, double y, __nv_saturation_t saturation,
                                       __nv_fp8_interpretation_t kind) {
    return to_fp8(x, saturation, kind) | to_fp8(y, saturation, kind) << 8;
}

template <class Format>
struct Fp8 {
    __nv_fp8_storage_t __x;

    Fp8() = default;
#define SIMULATOR_FP8_FROM(T) \
    explicit Fp8(T x) : __x(to_fp8<Format>(double(x), __NV_SATFINITE)) {}
    SIMULATOR_FP8_FROM(float)
    SIMULATOR_FP8_FROM(double)
    SIMULATOR_FP8_FROM(short)
    SIMULATOR_FP8_FROM(unsigned short)
    SIMULATOR_FP8_FROM(int)
    SIMULATOR_FP8_FROM(unsigned)
    SIMULATOR_FP8_FROM(long)
    SIMULATOR_FP8_FROM(unsigned long)
    SIMULATOR_FP8_FROM(long long)
    SIMULATOR_FP8_FROM(unsigned long long)
#undef SIMULATOR_FP8_FROM
    explicit Fp8(__half x) : Fp8(float(x)) {}
    explicit Fp8(__nv_bfloat16 x) : Fp8(float(x)) {}

    explicit operator float() const { return from_fp8<Format>(__x); }
    explicit operator double() const { return float(*this); }
    explicit operator __half() const { return float(*this); }
    explicit operator __nv_bfloat16() const { return float(*this); }
    explicit operator bool() const { return __x & 0x7f; }
#define SIMULATOR_FP8_TO(T) \
    explicit operator T() const { return __half::to_integer<T>(float(*this)); }
    SIMULATOR_FP8_TO(char)
    SIMULATOR_FP8_TO(signed char)
    SIMULATOR_FP8_TO(unsigned char)
    SIMULATOR_FP8_TO(short)
    SIMULATOR_FP8_TO(unsigned short)
    SIMULATOR_FP8_TO(int)
    SIMULATOR_FP8_TO(unsigned)
    SIMULATOR_FP8_TO(long)
    SIMULATOR_FP8_TO(unsigned long)
    SIMULATOR_FP8_TO(long long)
    SIMULATOR_FP8_TO(unsigned long long)
#undef SIMULATOR_FP8_TO
};

template <class Format>
struct Fp8x2 {
    __nv_fp8x2_storage_t __x;

    Fp8x2() = default;
    explicit Fp8x2(double2 v) : __x(to_fp8(v.x, v.y, __NV_SATFINITE, Format::interpretation)) {}
    explicit Fp8x2(float2 v) : Fp8x2(double2{v.x, v.y}) {}
    explicit Fp8x2(__half2 v) : Fp8x2(__half22float2(v)) {}
    explicit Fp8x2(__nv_bfloat162 v) : Fp8x2(__bfloat1622float2(v)) {}

    explicit operator float2() const {
        return {from_fp8<Format>(__x & 0xff), from_fp8<Format>(__x >> 8)};
    }
    explicit operator __half2() const { return __float22half2_rn(float2(*this)); }
    explicit operator __nv_bfloat162() const { return __float22bfloat162_rn(float2(*this)); }
};

template <class Format>
struct Fp8x4 {
    __nv_fp8x4_storage_t __x;

    Fp8x4() = default;
    explicit Fp8x4(double4 v)
        : __x(Fp8x2<Format>(double2{v.x, v.y}).__x |
              unsigned(Fp8x2<Format>(double2{v.z, v.w}).__x) << 16) {}
    explicit Fp8x4(float4 v) : Fp8x4(double4{v.x, v.y, v.z, v.w}) {}
    Fp8x4(__half2 low, __half2 high)
        : Fp8x4(float4{float(low.x), float(low.y), float(high.x), float(high.y)}) {}
    Fp8x4(__nv_bfloat162 low, __nv_bfloat162 high)
        : Fp8x4(float4{float(low.x), float(low.y), float(high.x), float(high.y)}) {}

    explicit operator float4() const {
        return {from_fp8<Format>(__x & 0xff), from_fp8<Format>(__x >> 8 & 0xff),
                from_fp8<Format>(__x >> 16 & 0xff), from_fp8<Format>(__x >> 24)};
    }
};

}  // namespace simulator

using __nv_fp8_e4m3 = simulator::Fp8<simulator::E4M3>;
using __nv_fp8_e5m2 = simulator::Fp8<simulator::E5M2>;
using __nv_fp8x2_e4m3 = simulator::Fp8x2<simulator::E4M3>;
using __nv_fp8x2_e5m2 = simulator::Fp8x2<simulator::E5M2>;
using __nv_fp8x4_e4m3 = simulator::Fp8x4<simulator::E4M3>;
using __nv_fp8x4_e5m2 = simulator::Fp8x4<simulator::E5M2>;

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
SIMULATOR_CVT_FP8(float, float2, float, float2, double, double)
SIMULATOR_CVT_FP8(halfraw, halfraw2, __half_raw, __half2_raw, __half, __ushort_as_half)
SIMULATOR_CVT_FP8(bfloat16raw, bfloat16raw2, __nv_bfloat16_raw, __nv_bfloat162_raw, __nv_bfloat16,
                  __ushort_as_bfloat16)
#undef SIMULATOR_CVT_FP8

SIMULATOR_INLINE __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x,
                                                    __nv_fp8_interpretation_t kind) {
    return __half(kind == __NV_E4M3 ? simulator::from_fp8<simulator::E4M3>(x)
                                    : simulator::from_fp8<simulator::E5M2>(x));
}
SIMULATOR_INLINE __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x,
                                                        __nv_fp8_interpretation_t kind) {
    return {__nv_cvt_fp8_to_halfraw(x & 0xff, kind).x, __nv_cvt_fp8_to_halfraw(x >> 8, kind).x};
}
