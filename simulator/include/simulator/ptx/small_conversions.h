// Conversions from and to two floats of 8, 6 or 4 bits, and two scales.
#pragma once
#include "../../cuda_fp8.h"
#include "half_types.h"

namespace simulator::ptx {

using e4m3x2 = E4M3;
using e5m2x2 = E5M2;
using e2m3x2 = E2M3;
using e3m2x2 = E3M2;
using e2m1x2 = E2M1;  // in one byte
SIMULATOR_TYPE(e4m3x2)
SIMULATOR_TYPE(e5m2x2)
SIMULATOR_TYPE(e2m3x2)
SIMULATOR_TYPE(e3m2x2)
SIMULATOR_TYPE(e2m1x2)

template <class Format>
constexpr int apart = Format::bits == 4 ? 4 : 8;

template <class Format, bool relu>
SIMULATOR_INLINE u16 small_of(float high, float low) {
    const auto of = [](float x) { return u16(to_small<Format>(relu && x <= 0 ? 0 : x)); };
    return u16(of(high) << apart<Format> | of(low));
}
template <class Format, bool relu>
SIMULATOR_INLINE u16 __ptx_small_of_f32(u32 high, u32 low) {
    return small_of<Format, relu>(as<f32>(high), as<f32>(low));
}
template <class Format, bool relu>
SIMULATOR_INLINE u16 __ptx_small_of_f16x2(u32 pair) {
    const f16x2 x = as<f16x2>(pair);
    return small_of<Format, relu>(x.y, x.x);
}
template <class Format>
SIMULATOR_INLINE u32 __ptx_f16x2_of_small(u16 pair) {
    constexpr u16 mask = (1 << apart<Format>)-1;
    return canonical(f16(from_small<Format>(u8(pair & mask)))) |
           u32(canonical(f16(from_small<Format>(u8(pair >> apart<Format> & mask))))) << 16;
}

template <bool up, bool is_finite>
SIMULATOR_INLINE u16 scales_of(float high, float low) {
    constexpr auto saturation = is_finite ? __NV_SATFINITE : __NV_NOSAT;
    return u16(to_e8m0(high, saturation, up) << 8 | to_e8m0(low, saturation, up));
}
template <bool up, bool is_finite>
SIMULATOR_INLINE u16 __ptx_scales_of_f32(u32 high, u32 low) {
    return scales_of<up, is_finite>(as<f32>(high), as<f32>(low));
}
template <bool up, bool is_finite>
SIMULATOR_INLINE u16 __ptx_scales_of_bf16x2(u32 pair) {
    return scales_of<up, is_finite>(as<f32>(pair & 0xffff0000), as<f32>(pair << 16));
}
SIMULATOR_INLINE u32 __ptx_bf16x2_of_scales(u16 pair) {
    const auto of = [](u8 code) {
        return u32(__bfloat16_as_ushort(__nv_bfloat16(from_e8m0(code))));
    };
    return of(u8(pair)) | of(u8(pair >> 8)) << 16;
}

// Stochastic rounding: away from zero where `count` random bits, added to the first bits that are
// cut off, give a carry.
SIMULATOR_INLINE double rounded_by(u32 random, unsigned count, double exact) {
    return floor(exact + (random & ((1u << count) - 1)) * power_of_two(-int(count)));
}

template <class Format, bool relu>
SIMULATOR_INLINE u8 stochastic(u32 word, u32 random, unsigned count) {
    const float x = as<f32>(word);
    if (x != x) return Format::nan;
    if (relu && x <= 0) return 0;
    constexpr int least = 1 - Format::bias;
    const double size = fabs(double(x));
    const int at = int(__double_as_longlong(size) >> 52) - 1023, exponent = at < least ? least : at;
    const double unit = power_of_two(exponent - Format::fraction);
    const double size_after =
        size < 1e6 ? rounded_by(random, count, size / unit) * unit : size;  // which is exact
    return to_small<Format>(x < 0 ? -size_after : size_after);
}
// {a, b, e, f}, the first in the highest bits. Those of 8 and 6 bits share 16 random bits in twos,
// each of 4 bits has 8.
template <class Format, bool relu>
SIMULATOR_INLINE u32 __ptx_four_stochastic(u32 a, u32 b, u32 e, u32 f, u32 random) {
    constexpr bool is_of_4 = Format::bits == 4;
    constexpr unsigned count = is_of_4 ? 8 : 16;
    const auto of = [](u32 x, u32 random) {
        return u32(stochastic<Format, relu>(x, random, count));
    };
    return of(a, random >> (is_of_4 ? 24 : 16)) << 3 * apart<Format> |
           of(b, random >> (is_of_4 ? 8 : 16)) << 2 * apart<Format> |
           of(e, random >> (is_of_4 ? 16 : 0)) << apart<Format> | of(f, random);
}
using e4m3x4 = E4M3;
using e5m2x4 = E5M2;
using e2m3x4 = E2M3;
using e3m2x4 = E3M2;
using e2m1x4 = E2M1;
SIMULATOR_TYPE(e4m3x4)
SIMULATOR_TYPE(e5m2x4)
SIMULATOR_TYPE(e2m3x4)
SIMULATOR_TYPE(e3m2x4)
SIMULATOR_TYPE(e2m1x4)

template <bool is_bfloat, bool relu, bool is_finite>
SIMULATOR_INLINE u32 half_stochastic(u32 word, u32 random) {
    const float x = as<f32>(word);
    if (x != x) return 0x7fff;
    if (relu && x <= 0) return 0;
    const u32 sign = word >> 16 & 0x8000, size = word & 0x7fffffff;
    if constexpr (is_bfloat) {
        const u32 sum = size >= 0x7f800000 ? size : size + (random & 0xffff);
        return sign | (is_finite && sum >= 0x7f800000 ? 0x7f7f : sum >> 16);
    } else {
        const int at = int(size >> 23) - 127, exponent = at < -14 ? -14 : at;
        const double unit = power_of_two(exponent - 10);
        const double after = rounded_by(random, 13, fabs(double(x)) / unit) * unit;
        if (exponent > 15 || after > 65504) return sign | (is_finite ? 0x7bff : 0x7c00);
        return sign | canonical(f16(float(after)));
    }
}
// To two: a in the upper half, by the upper half of the random bits.
template <bool is_bfloat, bool relu, bool is_finite>
SIMULATOR_INLINE u32 __ptx_halves_stochastic(u32 a, u32 b, u32 random) {
    return half_stochastic<is_bfloat, relu, is_finite>(a, random >> 16) << 16 |
           half_stochastic<is_bfloat, relu, is_finite>(b, random);
}

}  // namespace simulator::ptx
