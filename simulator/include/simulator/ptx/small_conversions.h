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

template <class Format>
constexpr int apart = Format::bits == 4 ? 4 : 8;

template <class Format, bool relu>
SIMULATOR_INLINE u16 small_of(float high, float low) {
    const auto of = [](float x) { return u16(to_small<Format>(relu && x <= 0 ? 0 : x)); };
    return u16(of(high) << apart<Format> | of(low));
}
template <class Format, bool relu>
SIMULATOR_INLINE u16 small_of_f32(u32 high, u32 low) {
    return small_of<Format, relu>(as<f32>(high), as<f32>(low));
}
template <class Format, bool relu>
SIMULATOR_INLINE u16 small_of_f16x2(u32 pair) {
    const f16x2 x = as<f16x2>(pair);
    return small_of<Format, relu>(x.y, x.x);
}
template <class Format>
SIMULATOR_INLINE u32 f16x2_of_small(u16 pair) {
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
SIMULATOR_INLINE u16 scales_of_f32(u32 high, u32 low) {
    return scales_of<up, is_finite>(as<f32>(high), as<f32>(low));
}
template <bool up, bool is_finite>
SIMULATOR_INLINE u16 scales_of_bf16x2(u32 pair) {
    return scales_of<up, is_finite>(as<f32>(pair & 0xffff0000), as<f32>(pair << 16));
}
SIMULATOR_INLINE u32 bf16x2_of_scales(u16 pair) {
    const auto of = [](u8 code) {
        return u32(__bfloat16_as_ushort(__nv_bfloat16(from_e8m0(code))));
    };
    return of(u8(pair)) | of(u8(pair >> 8)) << 16;
}

}  // namespace simulator::ptx
