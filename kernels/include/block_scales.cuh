// The formats MXFP8 and NVFP4: numbers of one byte or half a byte, and their block scales.
#pragma once

#include "block_scales.h"
#include "float8.cuh"

// e2m1: a sign, 2 bits of exponent, 1 of fraction: 0, 0.5, 1, 1.5, 2, 3, 4, 6. To nearest, ties to
// even; beyond 6 it is 6. x is not NaN. For GPUs without an instruction for it.
__device__ inline uint32_t to_float4_by_hand(float x) {
    const uint32_t sign = __float_as_uint(x) >> 28 & 8;
    const float size = fabsf(x);
    if (size >= 6) return sign | 7;
    // Below 1 all are multiples of 0.5, to which the sum is rounded.
    if (size < 1) return sign | (__float_as_uint(size + 0x1p22f) & 3);
    const uint32_t bits = __float_as_uint(size);
    return sign | (((bits + 0x1fffff + (bits >> 22 & 1)) >> 22) - ((127 << 1) - 2));
}

// Two of them in a byte, the first in its lower half.
__device__ inline uint8_t to_float4_pair(float first, float second) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH_SPECIFIC__ >= 1000 || \
    __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000
    uint32_t pair;
    asm("{ .reg .b8 pair;\n"
        "  cvt.rn.satfinite.e2m1x2.f32 pair, %1, %2;\n"
        "  cvt.u32.u8 %0, pair; }"
        : "=r"(pair)
        : "f"(second), "f"(first));
    return pair;
#else
    return to_float4_by_hand(first) | to_float4_by_hand(second) << 4;
#endif
}

// Exact. The three bits of the size stand in a float, 22 places further left; what is left to mend
// is the bias of the exponent, 1 there and 127 here.
__device__ inline float float4_to_float(uint32_t code) {
    return __uint_as_float((code & 8) << 28 | (code & 7) << 22) * 0x1p126f;
}

// A block's scale, and what its numbers are multiplied by; with 0 they all become 0.
struct BlockScale {
    uint8_t byte;
    float multiplier;
};

// 32 numbers in e4m3, and a scale in e8m0: 2^(byte - 127), or NaN for 255.
struct Mxfp8 {
    static constexpr int kBlock = 32, kPerByte = 1;

    // largest / 448, rounded up to a power of two; infinity becomes NaN.
    __device__ BlockScale scale_of(Largest largest) const {
        const uint32_t bits = __float_as_uint(__uint_as_float(largest.bits) * (1 / 448.f));
        if (largest.bits >= 0x7f800000) return {0xff, __uint_as_float(0x7fffffff)};
        // (2^-127, the smallest scale, is a subnormal float.)
        const bool up = bits >= 1 << 23 ? bits & 0x7fffff : bits > 1 << 22;
        const uint32_t byte = (bits >> 23) + up;
        return {uint8_t(byte), __uint_as_float((254 - byte) << 23)};
    }
    template <int N>
    __device__ static Vec<uint8_t, N> encode(const float (&x)[N]) {
        const Vec<Float8, N> all = to_float8(x);
        return reinterpret_cast<const Vec<uint8_t, N>&>(all);
    }
    __device__ static float scale(uint8_t byte) {
        if (byte == 0xff) return __uint_as_float(0x7fffffff);
        return __uint_as_float(byte ? uint32_t(byte) << 23 : 1 << 22);
    }
    __device__ static float decode(const uint8_t* bytes, int i) {
        return to_float(Float8{bytes[i]});
    }
};

// 16 numbers in e2m1, and a scale in e4m3, which is multiplied by that of the whole tensor.
struct Nvfp4 {
    static constexpr int kBlock = 16, kPerByte = 2;
    const float* tensor_scale;

    // largest / 6, in units of the tensor's scale, to nearest; infinity becomes NaN.
    __device__ BlockScale scale_of(Largest largest) const {
        const float size = __uint_as_float(largest.bits);
        const float quotient = isfinite(size) ? size / (6 * *tensor_scale) : size - size;
        const Float8 scale = to_float8(quotient);
        const float product = to_float(scale) * *tensor_scale;
        return {scale.bits, product > 0 ? fminf(1 / product, 0x1.fffffep127f) : 0};
    }
    template <int N>
    __device__ static Vec<uint8_t, N / 2> encode(const float (&x)[N]) {
        Vec<uint8_t, N / 2> all;
        for (int i = 0; i < N; i += 2) all[i / 2] = to_float4_pair(x[i], x[i + 1]);
        return all;
    }
    __device__ static float scale(uint8_t byte) { return to_float(Float8{byte}); }
    __device__ static float decode(const uint8_t* bytes, int i) {
        return float4_to_float(bytes[i / 2] >> i % 2 * 4 & 15);
    }
};

// x times a block's multiplier. (0 is no factor: infinity times 0 is NaN.)
template <int N>
__device__ void multiply(float (&x)[N], float multiplier) {
    for (float& each : x) each = multiplier == 0 ? 0 : each * multiplier;
}
