// __nv_bfloat16 and __nv_bfloat162.
#pragma once
#include "simulator/half.h"

struct SimulatorBFloat16 {  // the upper half of a float
    static constexpr bool is_wide = true;
    static float to_float(uint16_t bits) { return __uint_as_float(uint32_t(bits) << 16); }
    static uint16_t from_float(float x) {
        const uint32_t bits = __float_as_uint(x);
        return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
};

using __nv_bfloat16 = simulator::Half<SimulatorBFloat16>;
using __nv_bfloat162 = simulator::HalfPair<SimulatorBFloat16>;
using __nv_bfloat16_raw = simulator::HalfBits<SimulatorBFloat16>;
using __nv_bfloat162_raw = simulator::HalfPairBits<SimulatorBFloat16>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
#define __CUDA_BF16_TYPES_EXIST__
#define __CUDA_BF16_H__

SIMULATOR_HALF_NAMES(bfloat16, __nv_bfloat16, __nv_bfloat162)

#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(0x8000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3f80)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(0x0001)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7f7f)
#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7f80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7fff)
