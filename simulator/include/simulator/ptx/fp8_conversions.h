// Conversions from and to two floats of 8 bits.
#pragma once
#include "../../cuda_fp8.h"
#include "half_types.h"

namespace simulator::ptx {

using e4m3x2 = E4M3;
using e5m2x2 = E5M2;

template <class Format, bool relu>
SIMULATOR_INLINE u8 fp8_of(float x) {
    return to_fp8<Format>(relu && x <= 0 ? 0 : x, __NV_SATFINITE);
}
template <class Format, bool relu>
SIMULATOR_INLINE u16 fp8_of_f32(u32 high, u32 low) {
    return u16(fp8_of<Format, relu>(as<f32>(high)) << 8 | fp8_of<Format, relu>(as<f32>(low)));
}
template <class Format, bool relu>
SIMULATOR_INLINE u16 fp8_of_f16x2(u32 pair) {
    const f16x2 x = as<f16x2>(pair);
    return u16(fp8_of<Format, relu>(x.y) << 8 | fp8_of<Format, relu>(x.x));
}
template <class Format>
SIMULATOR_INLINE u32 f16x2_of_fp8(u16 pair) {
    return canonical(f16(from_fp8<Format>(u8(pair)))) |
           u32(canonical(f16(from_fp8<Format>(u8(pair >> 8))))) << 16;
}

}  // namespace simulator::ptx
