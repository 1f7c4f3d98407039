// Floating point of 8, 6 and 4 bits, in twos and fours too, for cuda_fp8.h, cuda_fp6.h and
// cuda_fp4.h. It only converts: arithmetic is done in half, bfloat16 or float.
//
// Rounding is to nearest, ties to even, and once. What is too large gives the greatest number, as
// all constructors have it. Types of 6 and 4 bits have neither infinity nor NaN: NaN gives the
// greatest positive number.
#pragma once
#include <initializer_list>
#include "../cuda_bf16.h"
#include "../cuda_fp16.h"

namespace simulator {

// overflow: what a number too large becomes without saturation; nan: what is no number becomes.
struct E4M3 {
    static constexpr int bits = 8, fraction = 3, bias = 7;
    static constexpr unsigned greatest = 0x7e, overflow = 0x7f, nan = 0x7f;
};
struct E5M2 {
    static constexpr int bits = 8, fraction = 2, bias = 15;
    static constexpr unsigned greatest = 0x7b, overflow = 0x7c, nan = 0x7f;
};
struct E2M3 {
    static constexpr int bits = 6, fraction = 3, bias = 1;
    static constexpr unsigned greatest = 0x1f, overflow = greatest, nan = greatest;
};
struct E3M2 {
    static constexpr int bits = 6, fraction = 2, bias = 3;
    static constexpr unsigned greatest = 0x1f, overflow = greatest, nan = greatest;
};
struct E2M1 {
    static constexpr int bits = 4, fraction = 1, bias = 1;
    static constexpr unsigned greatest = 7, overflow = greatest, nan = greatest;
};

// 2^exponent, of a number that is not subnormal.
SIMULATOR_INLINE double power_of_two(int exponent) {
    return __longlong_as_double((long long)(exponent + 1023) << 52);
}

template <class Format>
unsigned char to_small(double x, bool is_finite = true, bool to_nearest = true) {
    if (x != x) return Format::nan;
    constexpr int least = 1 - Format::bias;  // the exponent of subnormal numbers
    const unsigned sign = __double_as_longlong(x) < 0 ? 1u << (Format::bits - 1) : 0;
    const double size = fabs(x);
    const int at = int(__double_as_longlong(size) >> 52) - 1023;
    const int exponent = at < least ? least : at < 20 ? at : 20;
    // In units of the last digit; a carry goes over into the exponent.
    const double exact = size * power_of_two(Format::fraction - exponent);
    const double digits = to_nearest ? rint(exact) : trunc(exact);
    const unsigned code =
        digits < 64 ? unsigned(digits) + (unsigned(exponent - least) << Format::fraction) : 0xff;
    if (code <= Format::greatest) return sign | code;
    return sign | (is_finite ? Format::greatest : Format::overflow);
}

// Of a double, as CUDA's headers have it: its NaN keeps its sign in a type that has NaN.
template <class Format>
unsigned char to_small_of_double(double x, bool is_finite = true) {
    const long long bits = __double_as_longlong(x);
    const unsigned nan = Format::greatest == 0x7b ? 0x7e | (bits >> 50 & 1) : Format::nan;
    if (x != x && Format::bits == 8) return nan | (bits < 0 ? 0x80 : 0);
    return to_small<Format>(x, is_finite);
}

template <class Format>
float from_small(unsigned char code) {
    const unsigned size = code & ((1u << (Format::bits - 1)) - 1);
    float x;
    if (size > Format::greatest) {
        if (size != Format::overflow || size == Format::nan) return __int_as_float(0x7fffffff);
        x = __builtin_inff();
    } else {
        const int exponent = size >> Format::fraction;
        const int digits =
            (size & ((1 << Format::fraction) - 1)) | (exponent ? 1 << Format::fraction : 0);
        const int unit = (exponent ? exponent : 1) - Format::bias - Format::fraction;
        x = float(digits * power_of_two(unit));
    }
    return code >> (Format::bits - 1) & 1 ? -x : x;
}

template <class Format>
struct SmallFloat {
    unsigned char __x;

    SmallFloat() = default;
#define SIMULATOR_SMALL_FROM(T) \
    explicit SmallFloat(T x) : __x(to_small<Format>(double(x))) {}
    explicit SmallFloat(double x) : __x(to_small_of_double<Format>(x)) {}
    SIMULATOR_SMALL_FROM(float)
    SIMULATOR_SMALL_FROM(short)
    SIMULATOR_SMALL_FROM(unsigned short)
    SIMULATOR_SMALL_FROM(int)
    SIMULATOR_SMALL_FROM(unsigned)
    SIMULATOR_SMALL_FROM(long)
    SIMULATOR_SMALL_FROM(unsigned long)
    SIMULATOR_SMALL_FROM(long long)
    SIMULATOR_SMALL_FROM(unsigned long long)
#undef SIMULATOR_SMALL_FROM
    explicit SmallFloat(__half x) : SmallFloat(float(x)) {}
    explicit SmallFloat(__nv_bfloat16 x) : SmallFloat(float(x)) {}

    explicit operator float() const { return from_small<Format>(__x); }
    explicit operator double() const { return float(*this); }
    explicit operator __half() const {
        const float x = float(*this);
        return x == x ? __half(x) : __ushort_as_half(0x7fff);
    }
    explicit operator __nv_bfloat16() const { return float(*this); }
    explicit operator bool() const { return float(*this) != 0; }
#define SIMULATOR_SMALL_TO(T) \
    explicit operator T() const { return __half::to_integer<T>(float(*this)); }
    SIMULATOR_SMALL_TO(char)
    SIMULATOR_SMALL_TO(signed char)
    SIMULATOR_SMALL_TO(unsigned char)
    SIMULATOR_SMALL_TO(short)
    SIMULATOR_SMALL_TO(unsigned short)
    SIMULATOR_SMALL_TO(int)
    SIMULATOR_SMALL_TO(unsigned)
    SIMULATOR_SMALL_TO(long)
    SIMULATOR_SMALL_TO(unsigned long)
    SIMULATOR_SMALL_TO(long long)
    SIMULATOR_SMALL_TO(unsigned long long)
#undef SIMULATOR_SMALL_TO
};

// Numbers side by side, the first in the lowest bits: of 4 bits two to a byte, else one.
template <class Format, class Word>
struct SmallFloats {
    static constexpr int apart = Format::bits == 4 ? 4 : 8;
    Word __x;

    SmallFloats() = default;
    explicit SmallFloats(double2 v) : __x(pack({v.x, v.y})) {}
    explicit SmallFloats(float2 v) : __x(pack({v.x, v.y})) {}
    explicit SmallFloats(__half2 v) : SmallFloats(__half22float2(v)) {}
    explicit SmallFloats(__nv_bfloat162 v) : SmallFloats(__bfloat1622float2(v)) {}
    explicit SmallFloats(double4 v) : __x(pack({v.x, v.y, v.z, v.w})) {}
    explicit SmallFloats(double4_16a v) : __x(pack({v.x, v.y, v.z, v.w})) {}
    explicit SmallFloats(double4_32a v) : __x(pack({v.x, v.y, v.z, v.w})) {}
    explicit SmallFloats(float4 v) : __x(pack({v.x, v.y, v.z, v.w})) {}
    SmallFloats(__half2 low, __half2 high)
        : SmallFloats(float4{float(low.x), float(low.y), float(high.x), float(high.y)}) {}
    SmallFloats(__nv_bfloat162 low, __nv_bfloat162 high)
        : SmallFloats(float4{float(low.x), float(low.y), float(high.x), float(high.y)}) {}

    explicit operator float2() const { return {at(0), at(1)}; }
    explicit operator float4() const { return {at(0), at(1), at(2), at(3)}; }
    explicit operator __half2() const { return {__half(code(0)), __half(code(1))}; }
    explicit operator __nv_bfloat162() const { return __float22bfloat162_rn(float2(*this)); }

  private:
    SmallFloat<Format> code(int i) const {
        SmallFloat<Format> one;
        one.__x = __x >> i * apart & ((1u << apart) - 1);
        return one;
    }
    float at(int i) const { return float(code(i)); }
    static unsigned char one(double x) { return to_small_of_double<Format>(x); }
    static unsigned char one(float x) { return to_small<Format>(x); }
    template <class T>
    static Word pack(std::initializer_list<T> numbers) {
        unsigned word = 0, i = 0;
        for (T x : numbers) word |= unsigned(one(x)) << i++ * apart;
        return Word(word);
    }
};

}  // namespace simulator
