// What __half and __nv_bfloat16 have in common: 16 bits that are converted to float, worked with,
// and rounded back.
//
// CUDA's functions round once, to nearest, ties to even. A float computation followed by a
// conversion does the same for
// + - * / and sqrt, since a float has more than twice the digits of a half; a fused multiply-add
// goes through double.
#pragma once
#include "intrinsics.h"

namespace simulator {

// A type of 16 bits; Format converts from and to float.
template <class Format>
struct alignas(2) Half {
    uint16_t bits;

    Half() = default;
    constexpr Half(const Half&) = default;
    constexpr Half& operator=(const Half&) = default;
    Half(float x) : bits(Format::from_float(x)) {}
    Half(double x) : bits(Format::from_float(round_to_odd(x))) {}
    Half(int x) : Half(double(x)) {}
    Half(unsigned x) : Half(double(x)) {}
    Half(long x) : Half(double(x)) {}
    Half(unsigned long x) : Half(double(x)) {}
    Half(long long x) : Half(double(x)) {}
    Half(unsigned long long x) : Half(double(x)) {}
    Half(short x) : Half(float(x)) {}
    Half(unsigned short x) : Half(float(x)) {}

    static Half of_bits(uint16_t bits) {
        Half half;
        half.bits = bits;
        return half;
    }

    operator float() const { return Format::to_float(bits); }

    friend Half operator+(Half a, Half b) { return float(a) + float(b); }
    friend Half operator-(Half a, Half b) { return float(a) - float(b); }
    friend Half operator*(Half a, Half b) { return float(a) * float(b); }
    friend Half operator/(Half a, Half b) { return float(a) / float(b); }
    friend Half operator-(Half a) { return of_bits(a.bits ^ 0x8000); }
    friend Half operator+(Half a) { return a; }
    friend bool operator==(Half a, Half b) { return float(a) == float(b); }
    friend bool operator!=(Half a, Half b) { return float(a) != float(b); }
    friend bool operator<(Half a, Half b) { return float(a) < float(b); }
    friend bool operator>(Half a, Half b) { return float(a) > float(b); }
    friend bool operator<=(Half a, Half b) { return float(a) <= float(b); }
    friend bool operator>=(Half a, Half b) { return float(a) >= float(b); }
    Half& operator+=(Half b) { return *this = *this + b; }
    Half& operator-=(Half b) { return *this = *this - b; }
    Half& operator*=(Half b) { return *this = *this * b; }
    Half& operator/=(Half b) { return *this = *this / b; }
    Half& operator++() { return *this += Half(1.0f); }
    Half& operator--() { return *this -= Half(1.0f); }

  private:
    // A float whose last digit says whether anything was cut off: rounding it again is the same as
    // rounding x.
    static float round_to_odd(double x) {
        float nearest = float(x);
        if (double(nearest) == x || x != x) return nearest;
        if ((double(nearest) > x) == (x > 0)) nearest = __int_as_float(__float_as_int(nearest) - 1);
        return __int_as_float(__float_as_int(nearest) | 1);
    }
};

template <class Format>
struct alignas(4) HalfPair {
    Half<Format> x, y;

    HalfPair() = default;
    HalfPair(Half<Format> x, Half<Format> y) : x(x), y(y) {}

    friend HalfPair operator+(HalfPair a, HalfPair b) { return {a.x + b.x, a.y + b.y}; }
    friend HalfPair operator-(HalfPair a, HalfPair b) { return {a.x - b.x, a.y - b.y}; }
    friend HalfPair operator*(HalfPair a, HalfPair b) { return {a.x * b.x, a.y * b.y}; }
    friend HalfPair operator/(HalfPair a, HalfPair b) { return {a.x / b.x, a.y / b.y}; }
    friend HalfPair operator-(HalfPair a) { return {-a.x, -a.y}; }
    friend bool operator==(HalfPair a, HalfPair b) { return a.x == b.x && a.y == b.y; }
    friend bool operator!=(HalfPair a, HalfPair b) { return a.x != b.x && a.y != b.y; }
    HalfPair& operator+=(HalfPair b) { return *this = *this + b; }
    HalfPair& operator-=(HalfPair b) { return *this = *this - b; }
    HalfPair& operator*=(HalfPair b) { return *this = *this * b; }
    HalfPair& operator/=(HalfPair b) { return *this = *this / b; }
};

}  // namespace simulator

// The functions, for either type. A name with a 2 at its end works on pairs.
#define SIMULATOR_HALF      \
    template <class Format> \
    SIMULATOR_INLINE
#define SIMULATOR_HALF_BINARY(name, T, expression)                                             \
    SIMULATOR_HALF simulator::T<Format> name(simulator::T<Format> a, simulator::T<Format> b) { \
        return expression;                                                                     \
    }
#define SIMULATOR_HALF_COMPARE(name, op)                                                  \
    SIMULATOR_HALF bool __h##name(simulator::Half<Format> a, simulator::Half<Format> b) { \
        return a op b;                                                                    \
    }                                                                                     \
    SIMULATOR_HALF simulator::HalfPair<Format> __h##name##2(                              \
        simulator::HalfPair<Format> a, simulator::HalfPair<Format> b) {                   \
        return {float(a.x op b.x), float(a.y op b.y)};                                    \
    }                                                                                     \
    SIMULATOR_HALF bool __hb##name##2(                                                    \
        simulator::HalfPair<Format> a, simulator::HalfPair<Format> b) {                   \
        return a.x op b.x && a.y op b.y;                                                  \
    }
#define SIMULATOR_HALF_UNARY(name, name2, expression)                                    \
    SIMULATOR_HALF simulator::Half<Format> name(simulator::Half<Format> half) {          \
        const float x = half;                                                            \
        return expression;                                                               \
    }                                                                                    \
    SIMULATOR_HALF simulator::HalfPair<Format> name2(simulator::HalfPair<Format> pair) { \
        return {name(pair.x), name(pair.y)};                                             \
    }

SIMULATOR_HALF_BINARY(__hadd, Half, a + b)
SIMULATOR_HALF_BINARY(__hsub, Half, a - b)
SIMULATOR_HALF_BINARY(__hmul, Half, a* b)
SIMULATOR_HALF_BINARY(__hdiv, Half, a / b)
SIMULATOR_HALF_BINARY(__hadd_rn, Half, a + b)
SIMULATOR_HALF_BINARY(__hsub_rn, Half, a - b)
SIMULATOR_HALF_BINARY(__hmul_rn, Half, a* b)
SIMULATOR_HALF_BINARY(__hadd_sat, Half, __saturatef(a + b))
SIMULATOR_HALF_BINARY(__hmul_sat, Half, __saturatef(a* b))
SIMULATOR_HALF_BINARY(__hmax, Half, fmaxf(a, b))
SIMULATOR_HALF_BINARY(__hmin, Half, fminf(a, b))
SIMULATOR_HALF_BINARY(__hadd2, HalfPair, a + b)
SIMULATOR_HALF_BINARY(__hsub2, HalfPair, a - b)
SIMULATOR_HALF_BINARY(__hmul2, HalfPair, a* b)
SIMULATOR_HALF_BINARY(__h2div, HalfPair, a / b)
SIMULATOR_HALF_BINARY(__hmax2, HalfPair,
                      (simulator::HalfPair<Format>{__hmax(a.x, b.x), __hmax(a.y, b.y)}))
SIMULATOR_HALF_BINARY(__hmin2, HalfPair,
                      (simulator::HalfPair<Format>{__hmin(a.x, b.x), __hmin(a.y, b.y)}))
SIMULATOR_HALF_COMPARE(eq, ==)
SIMULATOR_HALF_COMPARE(ne, !=)
SIMULATOR_HALF_COMPARE(lt, <)
SIMULATOR_HALF_COMPARE(le, <=)
SIMULATOR_HALF_COMPARE(gt, >)
SIMULATOR_HALF_COMPARE(ge, >=)
SIMULATOR_HALF_UNARY(__hneg, __hneg2, -half)
SIMULATOR_HALF_UNARY(__habs, __habs2, fabsf(x))
SIMULATOR_HALF_UNARY(hsqrt, h2sqrt, sqrtf(x))
SIMULATOR_HALF_UNARY(hrsqrt, h2rsqrt, 1 / sqrt(double(x)))
SIMULATOR_HALF_UNARY(hrcp, h2rcp, 1 / x)
SIMULATOR_HALF_UNARY(hexp, h2exp, exp(double(x)))
SIMULATOR_HALF_UNARY(hexp2, h2exp2, exp2(double(x)))
SIMULATOR_HALF_UNARY(hlog, h2log, log(double(x)))
SIMULATOR_HALF_UNARY(hlog2, h2log2, log2(double(x)))
SIMULATOR_HALF_UNARY(hsin, h2sin, sin(double(x)))
SIMULATOR_HALF_UNARY(hcos, h2cos, cos(double(x)))
SIMULATOR_HALF_UNARY(htanh, h2tanh, tanh(double(x)))
SIMULATOR_HALF_UNARY(hfloor, h2floor, floorf(x))
SIMULATOR_HALF_UNARY(hceil, h2ceil, ceilf(x))
SIMULATOR_HALF_UNARY(htrunc, h2trunc, truncf(x))
SIMULATOR_HALF_UNARY(hrint, h2rint, rintf(x))

SIMULATOR_HALF simulator::Half<Format> __hfma(simulator::Half<Format> a, simulator::Half<Format> b,
                                              simulator::Half<Format> c) {
    return fma(double(a), double(b), double(c));
}
SIMULATOR_HALF simulator::HalfPair<Format> __hfma2(
    simulator::HalfPair<Format> a, simulator::HalfPair<Format> b, simulator::HalfPair<Format> c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
SIMULATOR_HALF bool __hisnan(simulator::Half<Format> x) { return x != x; }
SIMULATOR_HALF int __hisinf(simulator::Half<Format> x) {
    return isinf(float(x)) ? (x > simulator::Half<Format>(0.0f) ? 1 : -1) : 0;
}
#undef SIMULATOR_HALF_UNARY
#undef SIMULATOR_HALF_COMPARE
#undef SIMULATOR_HALF_BINARY
#undef SIMULATOR_HALF

// The functions whose names differ: SIMULATOR_HALF_NAMES(half, __half, __half2) and the like.
#define SIMULATOR_HALF_NAMES(h, Type, Type2)                                                   \
    SIMULATOR_INLINE Type __float2##h(float x) { return x; }                                   \
    SIMULATOR_INLINE Type __float2##h##_rn(float x) { return x; }                              \
    SIMULATOR_INLINE Type __double2##h(double x) { return x; }                                 \
    SIMULATOR_INLINE float __##h##2float(Type x) { return x; }                                 \
    SIMULATOR_INLINE Type2 __float2##h##2_rn(float x) { return {x, x}; }                       \
    SIMULATOR_INLINE Type2 __floats2##h##2_rn(float x, float y) { return {x, y}; }             \
    SIMULATOR_INLINE Type2 __float22##h##2_rn(float2 x) { return {x.x, x.y}; }                 \
    SIMULATOR_INLINE float2 __##h##22float2(Type2 x) { return {x.x, x.y}; }                    \
    SIMULATOR_INLINE Type __int2##h##_rn(int x) { return x; }                                  \
    SIMULATOR_INLINE Type __uint2##h##_rn(unsigned x) { return x; }                            \
    SIMULATOR_INLINE Type __ll2##h##_rn(long long x) { return x; }                             \
    SIMULATOR_INLINE int __##h##2int_rn(Type x) { return __float2int_rn(x); }                  \
    SIMULATOR_INLINE int __##h##2int_rz(Type x) { return __float2int_rz(x); }                  \
    SIMULATOR_INLINE unsigned __##h##2uint_rn(Type x) { return __float2uint_rn(x); }           \
    SIMULATOR_INLINE Type __ushort_as_##h(unsigned short bits) { return Type::of_bits(bits); } \
    SIMULATOR_INLINE Type __short_as_##h(short bits) { return Type::of_bits(bits); }           \
    SIMULATOR_INLINE unsigned short __##h##_as_ushort(Type x) { return x.bits; }               \
    SIMULATOR_INLINE short __##h##_as_short(Type x) { return x.bits; }                         \
    SIMULATOR_INLINE Type2 __##h##2##h##2(Type x) { return {x, x}; }                           \
    SIMULATOR_INLINE Type2 __halves2##h##2(Type x, Type y) { return {x, y}; }                  \
    SIMULATOR_INLINE Type2 make_##h##2(Type x, Type y) { return {x, y}; }
