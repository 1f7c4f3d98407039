// __nv_bfloat16 and __nv_bfloat162.
#pragma once
#include "simulator/half.h"

namespace simulator {

struct BFloat16 {  // the upper half of a float
    static float to_float(uint16_t bits) { return __uint_as_float(uint32_t(bits) << 16); }
    static uint16_t from_float(float x) {
        const uint32_t bits = __float_as_uint(x);
        return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
};

}  // namespace simulator

using __nv_bfloat16 = simulator::Half<simulator::BFloat16>;
using __nv_bfloat162 = simulator::HalfPair<simulator::BFloat16>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

SIMULATOR_HALF_NAMES(bfloat16, __nv_bfloat16, __nv_bfloat162)
SIMULATOR_INLINE float __low2float(__nv_bfloat162 x) { return x.x; }
SIMULATOR_INLINE float __high2float(__nv_bfloat162 x) { return x.y; }
SIMULATOR_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
SIMULATOR_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
SIMULATOR_INLINE __nv_bfloat162 __low2bfloat162(__nv_bfloat162 x) { return {x.x, x.x}; }
SIMULATOR_INLINE __nv_bfloat162 __high2bfloat162(__nv_bfloat162 x) { return {x.y, x.y}; }
