// What __half and __nv_bfloat16 have in common: 16 bits that are converted to float, worked with,
// and rounded back.
//
// CUDA's functions round once, to nearest, ties to even. A float computation followed by a
// conversion does the same for + - * / and sqrt, since a float has more than twice the digits of a
// half; a fused multiply-add goes through double.
#pragma once
#include "intrinsics.h"

namespace simulator {

// The bits alone.
template <class Format>
struct alignas(2) HalfBits {
    unsigned short x;
};
template <class Format>
struct alignas(4) HalfPairBits {
    unsigned short x, y;
};

// x + rest, as a double whose last digit says whether anything was cut off: rounding it again is
// the same as rounding the exact sum. x is the nearest double to it.
SIMULATOR_INLINE double round_to_odd(double x, double rest) {
    if (rest == 0 || !(rest - rest == 0) || !(x - x == 0)) return x;
    long long bits = __double_as_longlong(x);
    if ((rest > 0) != (x > 0)) bits--;
    return __longlong_as_double(bits | 1);
}

// An integer as such a double.
template <class T>
SIMULATOR_INLINE double integer_to_odd(T x) {
    if constexpr (sizeof(T) == 8)
        if (x >> 53 != 0 && x >> 53 != T(-1))  // the last 11 bits of 64 are too many
            return double(T((x & ~T(0x7ff)) | (x & 0x7ff ? 0x800 : 0)));
    return double(x);
}

// A type of 16 bits; Format converts from and to float.
template <class Format>
struct alignas(2) Half {
    uint16_t bits;

    Half() = default;
    constexpr Half(const Half&) = default;
    constexpr Half& operator=(const Half&) = default;
    constexpr Half(HalfBits<Format> raw) : bits(raw.x) {}
    Half(float x) : bits(Format::from_float(x)) {}
    Half(double x) : bits(Format::from_float(float_to_odd(x))) {}
    Half(int x) : Half(double(x)) {}
    Half(unsigned x) : Half(double(x)) {}
    Half(long x) : Half(integer_to_odd(x)) {}
    Half(unsigned long x) : Half(integer_to_odd(x)) {}
    Half(long long x) : Half(integer_to_odd(x)) {}
    Half(unsigned long long x) : Half(integer_to_odd(x)) {}
    Half(short x) : Half(float(x)) {}
    Half(unsigned short x) : Half(float(x)) {}

    static constexpr Half of_bits(uint16_t bits) { return HalfBits<Format>{bits}; }

    operator float() const { return Format::to_float(bits); }
    constexpr operator HalfBits<Format>() const { return {bits}; }

    // A cast to an integer takes the nearest that there is, as CUDA's does.
    explicit operator bool() const { return bits & 0x7fff; }
#define SIMULATOR_HALF_TO(T) \
    explicit operator T() const { return to_integer<T>(float(*this)); }
    SIMULATOR_HALF_TO(char)
    SIMULATOR_HALF_TO(signed char)
    SIMULATOR_HALF_TO(unsigned char)
    SIMULATOR_HALF_TO(short)
    SIMULATOR_HALF_TO(unsigned short)
    SIMULATOR_HALF_TO(int)
    SIMULATOR_HALF_TO(unsigned)
    SIMULATOR_HALF_TO(long)
    SIMULATOR_HALF_TO(unsigned long)
    SIMULATOR_HALF_TO(long long)
    SIMULATOR_HALF_TO(unsigned long long)
#undef SIMULATOR_HALF_TO

    // A NaN gives 0, and the least number of 64 bits, as the hardware has it.
    template <class T>
    SIMULATOR_INLINE static T to_integer(float x) {
        return sizeof(T) == 8 && x != x ? T(1ull << 63) : saturate<T>(x);
    }

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
    Half operator++(int) {
        const Half before = *this;
        ++*this;
        return before;
    }
    Half operator--(int) {
        const Half before = *this;
        --*this;
        return before;
    }

    // The next below and above, of a number that is not beyond them.
    Half next_down() const { return of_bits(bits & 0x8000 ? bits + 1 : bits ? bits - 1 : 0x8001); }
    Half next_up() const { return -(-*this).next_down(); }

    static Half down(double x) {
        const Half nearest(x);
        return float(nearest) > x ? nearest.next_down() : nearest;
    }
    static Half up(double x) { return -down(-x); }
    static Half toward_zero(double x) { return x < 0 ? up(x) : down(x); }

  private:
    static float float_to_odd(double x) {
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
    constexpr HalfPair(Half<Format> x, Half<Format> y) : x(x), y(y) {}
    constexpr HalfPair(HalfPairBits<Format> raw)
        : x(HalfBits<Format>{raw.x}), y(HalfBits<Format>{raw.y}) {}
    constexpr operator HalfPairBits<Format>() const { return {x.bits, y.bits}; }

    friend HalfPair operator+(HalfPair a, HalfPair b) { return {a.x + b.x, a.y + b.y}; }
    friend HalfPair operator-(HalfPair a, HalfPair b) { return {a.x - b.x, a.y - b.y}; }
    friend HalfPair operator*(HalfPair a, HalfPair b) { return {a.x * b.x, a.y * b.y}; }
    friend HalfPair operator/(HalfPair a, HalfPair b) { return {a.x / b.x, a.y / b.y}; }
    friend HalfPair operator-(HalfPair a) { return {-a.x, -a.y}; }
    friend HalfPair operator+(HalfPair a) { return a; }
    // Whether it is so for both, as CUDA has it: != is not the opposite of ==.
    friend bool operator==(HalfPair a, HalfPair b) { return a.x == b.x && a.y == b.y; }
    friend bool operator!=(HalfPair a, HalfPair b) { return a.x != b.x && a.y != b.y; }
    friend bool operator<(HalfPair a, HalfPair b) { return a.x < b.x && a.y < b.y; }
    friend bool operator>(HalfPair a, HalfPair b) { return a.x > b.x && a.y > b.y; }
    friend bool operator<=(HalfPair a, HalfPair b) { return a.x <= b.x && a.y <= b.y; }
    friend bool operator>=(HalfPair a, HalfPair b) { return a.x >= b.x && a.y >= b.y; }
    HalfPair& operator+=(HalfPair b) { return *this = *this + b; }
    HalfPair& operator-=(HalfPair b) { return *this = *this - b; }
    HalfPair& operator*=(HalfPair b) { return *this = *this * b; }
    HalfPair& operator/=(HalfPair b) { return *this = *this / b; }
    HalfPair& operator++() { return ++x, ++y, *this; }
    HalfPair& operator--() { return --x, --y, *this; }
    HalfPair operator++(int) { return {x++, y++}; }
    HalfPair operator--(int) { return {x--, y--}; }
};

}  // namespace simulator

// The functions, for either type. A name with a 2 at its end works on pairs.
#define SIMULATOR_HALF      \
    template <class Format> \
    SIMULATOR_INLINE
#define SIMULATOR_HALF_BINARY(name, name2, expression)                  \
    SIMULATOR_HALF simulator::Half<Format> name(                        \
        simulator::Half<Format> a, simulator::Half<Format> b) {         \
        return expression;                                              \
    }                                                                   \
    SIMULATOR_HALF simulator::HalfPair<Format> name2(                   \
        simulator::HalfPair<Format> a, simulator::HalfPair<Format> b) { \
        return {name(a.x, b.x), name(a.y, b.y)};                        \
    }
// Of two halves, of pairs one by one as 1 and 0 and as bits, and of both in a pair at once.
#define SIMULATOR_HALF_COMPARE(name, expression)                                              \
    SIMULATOR_HALF bool __h##name(simulator::Half<Format> x, simulator::Half<Format> y) {     \
        const float a = x, b = y;                                                             \
        return expression;                                                                    \
    }                                                                                         \
    SIMULATOR_HALF simulator::HalfPair<Format> __h##name##2(                                  \
        simulator::HalfPair<Format> a, simulator::HalfPair<Format> b) {                       \
        return {float(__h##name(a.x, b.x)), float(__h##name(a.y, b.y))};                      \
    }                                                                                         \
    SIMULATOR_HALF unsigned __h##name##2_mask(                                                \
        simulator::HalfPair<Format> a, simulator::HalfPair<Format> b) {                       \
        return (__h##name(a.x, b.x) ? 0xffffu : 0) | (__h##name(a.y, b.y) ? 0xffff0000u : 0); \
    }                                                                                         \
    SIMULATOR_HALF bool __hb##name##2(                                                        \
        simulator::HalfPair<Format> a, simulator::HalfPair<Format> b) {                       \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                    \
    }
#define SIMULATOR_HALF_UNARY(name, name2, expression)                                    \
    SIMULATOR_HALF simulator::Half<Format> name(simulator::Half<Format> half) {          \
        [[maybe_unused]] const float x = half;                                           \
        return expression;                                                               \
    }                                                                                    \
    SIMULATOR_HALF simulator::HalfPair<Format> name2(simulator::HalfPair<Format> pair) { \
        return {name(pair.x), name(pair.y)};                                             \
    }

namespace simulator {
SIMULATOR_HALF Half<Format> half_nan() { return Half<Format>::of_bits(0x7fff); }
// A NaN gives way to a number, and -0 is less than +0.
SIMULATOR_HALF Half<Format> half_extreme(Half<Format> a, Half<Format> b, bool greatest) {
    const float x = a, y = b;
    if (x != x) return y != y ? half_nan<Format>() : b;
    if (y != y) return a;
    if (x == y) return Half<Format>::of_bits(greatest ? a.bits & b.bits : a.bits | b.bits);
    return (x > y) == greatest ? a : b;
}
SIMULATOR_HALF Half<Format> half_extreme_or_nan(Half<Format> a, Half<Format> b, bool greatest) {
    return float(a) != float(a) || float(b) != float(b)
               ? half_nan<Format>()
               : half_extreme(a, b, greatest);
}
}  // namespace simulator

SIMULATOR_HALF_BINARY(__hadd, __hadd2, a + b)
SIMULATOR_HALF_BINARY(__hsub, __hsub2, a - b)
SIMULATOR_HALF_BINARY(__hmul, __hmul2, a* b)
SIMULATOR_HALF_BINARY(__hdiv, __h2div, a / b)
SIMULATOR_HALF_BINARY(__hadd_rn, __hadd2_rn, a + b)
SIMULATOR_HALF_BINARY(__hsub_rn, __hsub2_rn, a - b)
SIMULATOR_HALF_BINARY(__hmul_rn, __hmul2_rn, a* b)
SIMULATOR_HALF_BINARY(__hadd_sat, __hadd2_sat, __saturatef(a + b))
SIMULATOR_HALF_BINARY(__hsub_sat, __hsub2_sat, __saturatef(a - b))
SIMULATOR_HALF_BINARY(__hmul_sat, __hmul2_sat, __saturatef(a* b))
SIMULATOR_HALF_BINARY(__hmax, __hmax2, simulator::half_extreme(a, b, true))
SIMULATOR_HALF_BINARY(__hmin, __hmin2, simulator::half_extreme(a, b, false))
SIMULATOR_HALF_BINARY(__hmax_nan, __hmax2_nan, simulator::half_extreme_or_nan(a, b, true))
SIMULATOR_HALF_BINARY(__hmin_nan, __hmin2_nan, simulator::half_extreme_or_nan(a, b, false))
// With a NaN the first six are false, and the others, "unordered", true.
SIMULATOR_HALF_COMPARE(eq, a == b)
SIMULATOR_HALF_COMPARE(ne, a<b || a> b)
SIMULATOR_HALF_COMPARE(lt, a < b)
SIMULATOR_HALF_COMPARE(le, a <= b)
SIMULATOR_HALF_COMPARE(gt, a > b)
SIMULATOR_HALF_COMPARE(ge, a >= b)
SIMULATOR_HALF_COMPARE(equ, !(a < b || a > b))
SIMULATOR_HALF_COMPARE(neu, a != b)
SIMULATOR_HALF_COMPARE(ltu, !(a >= b))
SIMULATOR_HALF_COMPARE(leu, !(a > b))
SIMULATOR_HALF_COMPARE(gtu, !(a <= b))
SIMULATOR_HALF_COMPARE(geu, !(a < b))
SIMULATOR_HALF_UNARY(__hneg, __hneg2, -half)
SIMULATOR_HALF_UNARY(__habs, __habs2, simulator::Half<Format>::of_bits(half.bits & 0x7fff))
SIMULATOR_HALF_UNARY(hsqrt, h2sqrt, sqrtf(x))
SIMULATOR_HALF_UNARY(hrsqrt, h2rsqrt, 1 / sqrt(double(x)))
SIMULATOR_HALF_UNARY(hrcp, h2rcp, 1 / x)
SIMULATOR_HALF_UNARY(hexp, h2exp, exp(double(x)))
SIMULATOR_HALF_UNARY(hexp2, h2exp2, exp2(double(x)))
SIMULATOR_HALF_UNARY(hexp10, h2exp10, exp10(double(x)))
SIMULATOR_HALF_UNARY(hlog, h2log, log(double(x)))
SIMULATOR_HALF_UNARY(hlog2, h2log2, log2(double(x)))
SIMULATOR_HALF_UNARY(hlog10, h2log10, log10(double(x)))
SIMULATOR_HALF_UNARY(hsin, h2sin, sin(double(x)))
SIMULATOR_HALF_UNARY(hcos, h2cos, cos(double(x)))
SIMULATOR_HALF_UNARY(htanh, h2tanh, tanh(double(x)))
SIMULATOR_HALF_UNARY(htanh_approx, h2tanh_approx, tanh(double(x)))
SIMULATOR_HALF_UNARY(hfloor, h2floor, floorf(x))
SIMULATOR_HALF_UNARY(hceil, h2ceil, ceilf(x))
SIMULATOR_HALF_UNARY(htrunc, h2trunc, truncf(x))
SIMULATOR_HALF_UNARY(hrint, h2rint, rintf(x))

// The product is exact in double. So is the sum to within what rounding needs, unless its
// exponents reach as far as bfloat16's: then the rest is kept too.
SIMULATOR_HALF simulator::Half<Format> __hfma(simulator::Half<Format> a, simulator::Half<Format> b,
                                              simulator::Half<Format> c) {
    const double product = double(a) * double(b), addend = double(c), sum = product + addend;
    if constexpr (!Format::is_wide) return sum;
    const double part = sum - product, rest = (product - (sum - part)) + (addend - part);
    return simulator::round_to_odd(sum, rest);
}
SIMULATOR_HALF simulator::Half<Format> __hfma_sat(
    simulator::Half<Format> a, simulator::Half<Format> b, simulator::Half<Format> c) {
    return __saturatef(__hfma(a, b, c));
}
SIMULATOR_HALF simulator::Half<Format> __hfma_relu(
    simulator::Half<Format> a, simulator::Half<Format> b, simulator::Half<Format> c) {
    return __hmax_nan(__hfma(a, b, c), simulator::Half<Format>::of_bits(0));
}
#define SIMULATOR_HALF_FMA(name2, name)                               \
    SIMULATOR_HALF simulator::HalfPair<Format> name2(                 \
        simulator::HalfPair<Format> a, simulator::HalfPair<Format> b, \
        simulator::HalfPair<Format> c) {                              \
        return {name(a.x, b.x, c.x), name(a.y, b.y, c.y)};            \
    }
SIMULATOR_HALF_FMA(__hfma2, __hfma)
SIMULATOR_HALF_FMA(__hfma2_sat, __hfma_sat)
SIMULATOR_HALF_FMA(__hfma2_relu, __hfma_relu)
#undef SIMULATOR_HALF_FMA
// Complex numbers: a * b + c.
SIMULATOR_HALF simulator::HalfPair<Format> __hcmadd(
    simulator::HalfPair<Format> a, simulator::HalfPair<Format> b, simulator::HalfPair<Format> c) {
    return {__hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
}
SIMULATOR_HALF bool __hisnan(simulator::Half<Format> x) { return x != x; }
SIMULATOR_HALF simulator::HalfPair<Format> __hisnan2(simulator::HalfPair<Format> x) {
    return {float(x.x != x.x), float(x.y != x.y)};
}
SIMULATOR_HALF int __hisinf(simulator::Half<Format> x) {
    return isinf(float(x)) ? (x.bits & 0x8000 ? -1 : 1) : 0;
}
SIMULATOR_HALF float __low2float(simulator::HalfPair<Format> x) { return x.x; }
SIMULATOR_HALF float __high2float(simulator::HalfPair<Format> x) { return x.y; }
SIMULATOR_HALF simulator::HalfPair<Format> __lowhigh2highlow(simulator::HalfPair<Format> x) {
    return {x.y, x.x};
}
#undef SIMULATOR_HALF_UNARY
#undef SIMULATOR_HALF_COMPARE
#undef SIMULATOR_HALF_BINARY
#undef SIMULATOR_HALF

// The functions whose names differ: SIMULATOR_HALF_NAMES(half, __half, __half2) and the like.
#define SIMULATOR_HALF_NAMES(h, Type, Type2)                                                   \
    SIMULATOR_INLINE Type __float2##h(float x) { return x; }                                   \
    SIMULATOR_INLINE Type __float2##h##_rn(float x) { return x; }                              \
    SIMULATOR_INLINE Type __float2##h##_rd(float x) { return Type::down(x); }                  \
    SIMULATOR_INLINE Type __float2##h##_ru(float x) { return Type::up(x); }                    \
    SIMULATOR_INLINE Type __float2##h##_rz(float x) { return Type::toward_zero(x); }           \
    SIMULATOR_INLINE Type __double2##h(double x) { return x; }                                 \
    SIMULATOR_INLINE float __##h##2float(Type x) { return x; }                                 \
    SIMULATOR_INLINE Type2 __float2##h##2_rn(float x) { return {x, x}; }                       \
    SIMULATOR_INLINE Type2 __floats2##h##2_rn(float x, float y) { return {x, y}; }             \
    SIMULATOR_INLINE Type2 __float22##h##2_rn(float2 x) { return {x.x, x.y}; }                 \
    SIMULATOR_INLINE float2 __##h##22float2(Type2 x) { return {x.x, x.y}; }                    \
    SIMULATOR_HALF_INTEGER(h, Type, short, short)                                              \
    SIMULATOR_HALF_INTEGER(h, Type, ushort, unsigned short)                                    \
    SIMULATOR_HALF_INTEGER(h, Type, int, int)                                                  \
    SIMULATOR_HALF_INTEGER(h, Type, uint, unsigned)                                            \
    SIMULATOR_HALF_INTEGER(h, Type, ll, long long)                                             \
    SIMULATOR_HALF_INTEGER(h, Type, ull, unsigned long long)                                   \
    SIMULATOR_INLINE signed char __##h##2char_rz(Type x) { return (signed char)x; }            \
    SIMULATOR_INLINE unsigned char __##h##2uchar_rz(Type x) { return (unsigned char)x; }       \
    SIMULATOR_INLINE Type __ushort_as_##h(unsigned short bits) { return Type::of_bits(bits); } \
    SIMULATOR_INLINE Type __short_as_##h(short bits) { return Type::of_bits(bits); }           \
    SIMULATOR_INLINE unsigned short __##h##_as_ushort(Type x) { return x.bits; }               \
    SIMULATOR_INLINE short __##h##_as_short(Type x) { return x.bits; }                         \
    SIMULATOR_INLINE Type2 __##h##2##h##2(Type x) { return {x, x}; }                           \
    SIMULATOR_INLINE Type2 __halves2##h##2(Type x, Type y) { return {x, y}; }                  \
    SIMULATOR_INLINE Type2 make_##h##2(Type x, Type y) { return {x, y}; }                      \
    SIMULATOR_INLINE Type __low2##h(Type2 x) { return x.x; }                                   \
    SIMULATOR_INLINE Type __high2##h(Type2 x) { return x.y; }                                  \
    SIMULATOR_INLINE Type2 __low2##h##2(Type2 x) { return {x.x, x.x}; }                        \
    SIMULATOR_INLINE Type2 __high2##h##2(Type2 x) { return {x.y, x.y}; }                       \
    SIMULATOR_INLINE Type2 __lows2##h##2(Type2 x, Type2 y) { return {x.x, y.x}; }              \
    SIMULATOR_INLINE Type2 __highs2##h##2(Type2 x, Type2 y) { return {x.y, y.y}; }
#define SIMULATOR_HALF_INTEGER(h, Type, name, T)                                               \
    SIMULATOR_INLINE T __##h##2##name##_rn(Type x) {                                           \
        return Type::template to_integer<T>(rintf(x));                                         \
    }                                                                                          \
    SIMULATOR_INLINE T __##h##2##name##_rd(Type x) {                                           \
        return Type::template to_integer<T>(floorf(x));                                        \
    }                                                                                          \
    SIMULATOR_INLINE T __##h##2##name##_ru(Type x) {                                           \
        return Type::template to_integer<T>(ceilf(x));                                         \
    }                                                                                          \
    SIMULATOR_INLINE T __##h##2##name##_rz(Type x) { return Type::template to_integer<T>(x); } \
    SIMULATOR_INLINE Type __##name##2##h##_rn(T x) { return x; }                               \
    SIMULATOR_INLINE Type __##name##2##h##_rd(T x) {                                           \
        return Type::down(simulator::integer_to_odd(x));                                       \
    }                                                                                          \
    SIMULATOR_INLINE Type __##name##2##h##_ru(T x) {                                           \
        return Type::up(simulator::integer_to_odd(x));                                         \
    }                                                                                          \
    SIMULATOR_INLINE Type __##name##2##h##_rz(T x) {                                           \
        return Type::toward_zero(simulator::integer_to_odd(x));                                \
    }
