// Arithmetic with f32 and f64, and with two f32 in a register. A function whose error PTX only
// bounds is the exact one, rounded.
#pragma once
#include "rounding.h"

namespace simulator::ptx {

#define SIMULATOR_ROUNDED_2(name, expression)                                           \
    template <Round mode, class T>                                                      \
    SIMULATOR_INLINE Word<T> __ptx_float_##name(Word<T> a, Word<T> b) {                 \
        return canonical(with_rounding<mode>(                                           \
            [](T x, T y) SIMULATOR_ALWAYS_INLINE -> T { return expression; }, as<T>(a), \
            as<T>(b)));                                                                 \
    }
SIMULATOR_ROUNDED_2(add, x + y)
SIMULATOR_ROUNDED_2(sub, x - y)
SIMULATOR_ROUNDED_2(mul, x* y)
SIMULATOR_ROUNDED_2(div, x / y)
#undef SIMULATOR_ROUNDED_2

template <class T>
SIMULATOR_INLINE T root(T x) {
    if constexpr (sizeof(T) == 4)
        return __builtin_sqrtf(x);
    else
        return __builtin_sqrt(x);
}
template <Round mode, class T>
SIMULATOR_INLINE Word<T> __ptx_float_sqrt(Word<T> a) {
    return canonical(
        with_rounding<mode>([](T x) SIMULATOR_ALWAYS_INLINE -> T { return root(x); }, as<T>(a)));
}
template <Round mode, class T>
SIMULATOR_INLINE Word<T> __ptx_float_rcp(Word<T> a) {
    return canonical(
        with_rounding<mode>([](T x) SIMULATOR_ALWAYS_INLINE -> T { return 1 / x; }, as<T>(a)));
}
template <Round mode, class T>
SIMULATOR_INLINE Word<T> __ptx_float_fma(Word<T> a, Word<T> b, Word<T> c) {
    const auto fused = [](T x, T y, T z) SIMULATOR_ALWAYS_INLINE -> T {
        if constexpr (sizeof(T) == 4)
            return __builtin_fmaf(x, y, z);
        else
            return __builtin_fma(x, y, z);
    };
    return canonical(with_rounding<mode>(fused, as<T>(a), as<T>(b), as<T>(c)));
}

template <class T>
SIMULATOR_INLINE Word<T> __ptx_float_abs(Word<T> a) {
    return a & ~sign_bit<T>;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_float_neg(Word<T> a) {
    return a ^ sign_bit<T>;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_copysign(Word<T> a, Word<T> b) {
    return (a & sign_bit<T>) | (b & ~sign_bit<T>);
}

// A NaN gives way to a number or, with .NaN, does not; -0 is less than +0.
template <class T, bool is_greatest, bool keeps_nan>
SIMULATOR_INLINE Word<T> __ptx_extreme(Word<T> a, Word<T> b) {
    const T x = as<T>(a), y = as<T>(b);
    if (x != x || y != y) {
        if (keeps_nan || (x != x && y != y)) return canonical(x != x ? x : y);
        return x != x ? b : a;
    }
    if (x == y) return is_greatest ? a & b : a | b;
    return (x > y) == is_greatest ? a : b;
}
// .xorsign.abs: that of the magnitudes, with the sign of the product.
template <class T, bool is_greatest, bool keeps_nan>
SIMULATOR_INLINE Word<T> __ptx_extreme_xorsign(Word<T> a, Word<T> b) {
    const Word<T> size =
        __ptx_extreme<T, is_greatest, keeps_nan>(a & ~sign_bit<T>, b & ~sign_bit<T>);
    return as<T>(size) == as<T>(size) ? size | ((a ^ b) & sign_bit<T>) : size;
}

template <class T>
SIMULATOR_INLINE Word<T> __ptx_float_rsqrt(Word<T> a) {
    return canonical(T(1 / root(as<T>(a))));
}
#define SIMULATOR_APPROXIMATE(name, function) \
    SIMULATOR_INLINE u32 __ptx_float_##name(u32 a) { return canonical(function(as<f32>(a))); }
SIMULATOR_APPROXIMATE(sin, __builtin_sinf)
SIMULATOR_APPROXIMATE(cos, __builtin_cosf)
SIMULATOR_APPROXIMATE(lg2, __builtin_log2f)
SIMULATOR_APPROXIMATE(ex2, __builtin_exp2f)
SIMULATOR_APPROXIMATE(tanh, __builtin_tanhf)
#undef SIMULATOR_APPROXIMATE

// rcp and rsqrt.approx.ftz.f64 look at the upper half of a number and give such a half.
SIMULATOR_INLINE u64 upper_half(u64 x) {
    const bool is_finite = (x >> 52 & 0x7ff) != 0x7ff;
    return (is_finite ? x + 0x80000000 : x) & 0xffffffff00000000;
}
SIMULATOR_INLINE u64 __ptx_float_rcp_gross(u64 a) {
    return __ptx_flush<f64>(
        upper_half(__ptx_word(1 / as<f64>(__ptx_flush<f64>(a & 0xffffffff00000000)))));
}
SIMULATOR_INLINE u64 __ptx_float_rsqrt_gross(u64 a) {
    return upper_half(__ptx_float_rsqrt<f64>(__ptx_flush<f64>(a & 0xffffffff00000000)));
}

template <class T>
SIMULATOR_INLINE bool __ptx_testp_finite(Word<T> a) {
    return __builtin_isfinite(as<T>(a));
}
template <class T>
SIMULATOR_INLINE bool __ptx_testp_infinite(Word<T> a) {
    return __builtin_isinf(as<T>(a));
}
template <class T>
SIMULATOR_INLINE bool __ptx_testp_number(Word<T> a) {
    return as<T>(a) == as<T>(a);
}
template <class T>
SIMULATOR_INLINE bool __ptx_testp_notanumber(Word<T> a) {
    return as<T>(a) != as<T>(a);
}
template <class T>
SIMULATOR_INLINE bool __ptx_testp_subnormal(Word<T> a) {
    return __ptx_float_abs<T>(a) && __ptx_flush<T>(a) != a;
}
// Zeros count as normal.
template <class T>
SIMULATOR_INLINE bool __ptx_testp_normal(Word<T> a) {
    return __ptx_testp_finite<T>(a) && !__ptx_testp_subnormal<T>(a);
}

// Two f32 in a register.
#define SIMULATOR_PAIRWISE(name, parameters, low, high)                                           \
    template <Round mode>                                                                         \
    SIMULATOR_INLINE u64 __ptx_float_##name##_pair parameters {                                   \
        return __ptx_float_##name<mode, f32> low | u64(__ptx_float_##name<mode, f32> high) << 32; \
    }
SIMULATOR_PAIRWISE(add, (u64 a, u64 b), (u32(a), u32(b)), (u32(a >> 32), u32(b >> 32)))
SIMULATOR_PAIRWISE(sub, (u64 a, u64 b), (u32(a), u32(b)), (u32(a >> 32), u32(b >> 32)))
SIMULATOR_PAIRWISE(mul, (u64 a, u64 b), (u32(a), u32(b)), (u32(a >> 32), u32(b >> 32)))
SIMULATOR_PAIRWISE(fma, (u64 a, u64 b, u64 c), (u32(a), u32(b), u32(c)),
                   (u32(a >> 32), u32(b >> 32), u32(c >> 32)))
#undef SIMULATOR_PAIRWISE
SIMULATOR_INLINE u64 __ptx_flush_pair(u64 x) {
    return __ptx_flush<f32>(u32(x)) | u64(__ptx_flush<f32>(u32(x >> 32))) << 32;
}

}  // namespace simulator::ptx
