// Conversions among integers, f32 and f64, and to tf32. Each gives a value of its type, so that a
// wider register is filled with the sign of a signed integer.
#pragma once
#include "../intrinsics.h"
#include "rounding.h"

namespace simulator::ptx {

template <class To, class From>
SIMULATOR_INLINE To __ptx_convert(Word<From> a) {
    return To(From(a));
}
// .sat: the nearest integer that there is.
template <class To, class From>
SIMULATOR_INLINE To __ptx_convert_saturated(Word<From> a) {
    constexpr bool is_signed = To(-1) < To(0);
    constexpr __int128 high = To(~0ull >> (64 - 8 * sizeof(To) + is_signed));
    constexpr __int128 low = is_signed ? -high - 1 : 0;
    const __int128 x = From(a);
    return To(x < low ? low : x > high ? high : x);
}

template <Round mode, class To, class From>
SIMULATOR_INLINE Word<To> __ptx_float_of_integer(Word<From> a) {
    return __ptx_word(
        with_rounding<mode>([](From x) SIMULATOR_ALWAYS_INLINE -> To { return To(x); }, From(a)));
}

// A NaN gives 0; but where the hardware works with 64 bits, the highest bit alone.
template <Round mode, class To, class From>
SIMULATOR_INLINE To integer_of_number(From x) {
    if (x != x) {
        constexpr bool is_long = sizeof(To) == 8 || sizeof(From) == 8;
        return is_long ? To(1ull << (8 * sizeof(To) - 1)) : To(0);
    }
    return saturate<To>(whole<mode>(x));
}
template <Round mode, class To, class From>
SIMULATOR_INLINE To __ptx_integer_of_float(Word<From> a) {
    return integer_of_number<mode, To>(as<From>(a));
}

template <Round mode, class T>
SIMULATOR_INLINE Word<T> __ptx_integral(Word<T> a) {
    return canonical(whole<mode>(as<T>(a)));
}
SIMULATOR_INLINE u64 __ptx_f64_of_f32(u32 a) { return __ptx_word(f64(as<f32>(a))); }
template <Round mode>
SIMULATOR_INLINE u32 __ptx_f32_of_f64(u64 a) {
    return canonical(with_rounding<mode>(
        [](f64 x) SIMULATOR_ALWAYS_INLINE -> f32 { return f32(x); }, as<f64>(a)));
}

// tf32 is an f32 whose last 13 bits are 0. Rounding away from 0 takes a NaN for a number that is
// cut off, as the hardware does.
enum class Tf32Round { rna, rn, rz };
SIMULATOR_NAMED(Tf32Round, rna)
SIMULATOR_NAMED(Tf32Round, rn)
SIMULATOR_NAMED(Tf32Round, rz)
template <Tf32Round mode, bool is_finite, bool relu>
SIMULATOR_INLINE u32 __ptx_tf32_of_f32(u32 a) {
    constexpr u32 infinity = 0x7f800000, greatest = 0x7f7fe000, last = 0x1fff;
    const u32 sign = a & 0x80000000;
    u32 size = a & 0x7fffffff;
    if (size > infinity) return mode == Tf32Round::rna ? a & ~last : 0x7fffe000;
    if (relu && sign) return 0;
    if (size < infinity) {
        if (mode == Tf32Round::rna) size += 0x1000;
        if (mode == Tf32Round::rn) size += 0xfff + (size >> 13 & 1);
        size &= ~last;
    }
    return sign | (is_finite && size > greatest ? greatest : size);
}

// cvt.pack: b in the lowest bits, a above it, and c above both.
template <class To, int bits>
SIMULATOR_INLINE u32 __ptx_pack_saturated(u32 a, u32 b, u32 c) {
    constexpr bool is_signed = To(-1) < To(0);
    constexpr s32 high = (1 << (bits - is_signed)) - 1, low = is_signed ? -high - 1 : 0;
    constexpr u32 mask = (1u << bits) - 1;
    const auto part = [](s32 x) { return u32(x < low ? low : x > high ? high : x) & mask; };
    const u32 both = part(s32(b)) | part(s32(a)) << bits;
    return bits == 16 ? both : both | c << (2 * bits % 32);
}

}  // namespace simulator::ptx
