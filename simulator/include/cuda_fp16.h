// __half and __half2.
#pragma once
#include "simulator/half.h"

namespace simulator {

struct Float16 {  // IEEE binary16: 5 bits of exponent, 10 of fraction
    static float to_float(uint16_t bits);
    static uint16_t from_float(float x);
};

#if defined(__F16C__) && !defined(__clang__)
typedef float Float4 __attribute__((vector_size(16)));
typedef short Short8 __attribute__((vector_size(16)));

inline float Float16::to_float(uint16_t bits) {
    return __builtin_ia32_vcvtph2ps(Short8{short(bits)})[0];
}
inline uint16_t Float16::from_float(float x) { return __builtin_ia32_vcvtps2ph(Float4{x}, 0)[0]; }
#elif defined(__F16C__) || defined(__ARM_FP16_FORMAT_IEEE)
inline float Float16::to_float(uint16_t bits) {
    __fp16 half;
    __builtin_memcpy(&half, &bits, 2);
    return half;
}
inline uint16_t Float16::from_float(float x) {
    const __fp16 half = x;
    uint16_t bits;
    __builtin_memcpy(&bits, &half, 2);
    return bits;
}
#else
inline float Float16::to_float(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    // The exponent's bias is 15 here and 127 there. Multiplication puts subnormals right too.
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest << 13) * 0x1p112f));
}
inline uint16_t Float16::from_float(float x) {
    const uint32_t bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return sign | 0x7fff;
    if (rest >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
    if (rest < 0x38800000)                         // subnormal: let the addition round to 2^-24
        return sign | (__float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000);
    return sign | (rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13;
}
#endif

}  // namespace simulator

using __half = simulator::Half<simulator::Float16>;
using __half2 = simulator::HalfPair<simulator::Float16>;
using half = __half;
using half2 = __half2;

SIMULATOR_HALF_NAMES(half, __half, __half2)
SIMULATOR_INLINE float __low2float(__half2 x) { return x.x; }
SIMULATOR_INLINE float __high2float(__half2 x) { return x.y; }
SIMULATOR_INLINE __half __low2half(__half2 x) { return x.x; }
SIMULATOR_INLINE __half __high2half(__half2 x) { return x.y; }
SIMULATOR_INLINE __half2 __low2half2(__half2 x) { return {x.x, x.x}; }
SIMULATOR_INLINE __half2 __high2half2(__half2 x) { return {x.y, x.y}; }
SIMULATOR_INLINE __half2 __lowhigh2highlow(__half2 x) { return {x.y, x.x}; }
SIMULATOR_INLINE __half2 __lows2half2(__half2 x, __half2 y) { return {x.x, y.x}; }
SIMULATOR_INLINE __half2 __highs2half2(__half2 x, __half2 y) { return {x.y, y.y}; }
