// __half and __half2.
#pragma once
#include "simulator/half.h"

// It is global so that a file's own functions are found for __half as they are for CUDA's.
struct SimulatorFloat16 {  // IEEE binary16: 5 bits of exponent, 10 of fraction
    static constexpr bool is_wide = false;
    static float to_float(uint16_t bits);
    static uint16_t from_float(float x);
};

#if defined(__F16C__) && !defined(__clang__)
namespace simulator {
typedef float Float4 __attribute__((vector_size(16)));
typedef short Short8 __attribute__((vector_size(16)));
}  // namespace simulator

inline float SimulatorFloat16::to_float(uint16_t bits) {
    return __builtin_ia32_vcvtph2ps(simulator::Short8{short(bits)})[0];
}
inline uint16_t SimulatorFloat16::from_float(float x) {
    return __builtin_ia32_vcvtps2ph(simulator::Float4{x}, 0)[0];
}
#elif defined(__F16C__) || defined(__ARM_FP16_FORMAT_IEEE)
inline float SimulatorFloat16::to_float(uint16_t bits) {
    __fp16 half;
    __builtin_memcpy(&half, &bits, 2);
    return half;
}
inline uint16_t SimulatorFloat16::from_float(float x) {
    const __fp16 half = x;
    uint16_t bits;
    __builtin_memcpy(&bits, &half, 2);
    return bits;
}
#else
inline float SimulatorFloat16::to_float(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    // The exponent's bias is 15 here and 127 there. Multiplication puts subnormals right too.
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest << 13) * 0x1p112f));
}
inline uint16_t SimulatorFloat16::from_float(float x) {
    const uint32_t bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return sign | 0x7fff;
    if (rest >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
    if (rest < 0x38800000)                         // subnormal: let the addition round to 2^-24
        return sign | (__float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000);
    return sign | (rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13;
}
#endif

using __half = simulator::Half<SimulatorFloat16>;
using __half2 = simulator::HalfPair<SimulatorFloat16>;
using __half_raw = simulator::HalfBits<SimulatorFloat16>;
using __half2_raw = simulator::HalfPairBits<SimulatorFloat16>;
using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using __nv_half_raw = __half_raw;
using __nv_half2_raw = __half2_raw;
#define __CUDA_FP16_TYPES_EXIST__
#define __CUDA_FP16_H__

SIMULATOR_HALF_NAMES(half, __half, __half2)

#define CUDART_ZERO_FP16 __ushort_as_half(0x0000)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(0x8000)
#define CUDART_ONE_FP16 __ushort_as_half(0x3c00)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(0x0001)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7bff)
#define CUDART_INF_FP16 __ushort_as_half(0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7fff)
