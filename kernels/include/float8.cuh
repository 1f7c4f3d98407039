// Between floats and floats of one byte, and the scales by which numbers of any size become such.
#pragma once

#include "float8.h"
#include "rows.cuh"

// ---- conversions

// Exact. The bits of the number stand in a float as they are, 20 places further left; what is left
// to mend is the bias of the exponent, 7 there and 127 here.
__device__ inline float to_float(Float8 x) {
    const uint32_t size = x.bits & 0x7f, sign = uint32_t(x.bits & 0x80) << 24;
    if (size == 0x7f) return __uint_as_float(0x7fffffff);
    return __uint_as_float(sign | size << 20) * 0x1p120f;
}

// Rounds to nearest, ties to even, and saturates at 448 and -448, as PyTorch's
// x.clamp(-448, 448).to(float8_e4m3fn). For GPUs before 8.9, which have no instruction for it.
__device__ inline Float8 to_float8_by_hand(float x) {
    const float size = fabsf(x);
    const uint32_t sign = __float_as_uint(x) >> 24 & 0x80;
    if (x != x) return {0x7f};
    if (size >= 448) return {uint8_t(sign | 0x7e)};
    // Below the least normal number all are multiples of 2^-9, to which the sum is rounded.
    if (size < 0x1p-6f) return {uint8_t(sign | (__float_as_uint(size + 0x1p14f) & 0xf))};
    const uint32_t bits = __float_as_uint(size);
    const uint32_t rounded = bits + 0x7ffff + (bits >> 20 & 1);
    return {uint8_t(sign | ((rounded >> 20) - ((127 - 7) << 3)))};
}

// The same of two floats, the first in the lower byte.
__device__ inline uint16_t to_float8_pair(float first, float second) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
    return pair;
#else
    return to_float8_by_hand(first).bits | to_float8_by_hand(second).bits << 8;
#endif
}

template <int N>
__device__ Vec<Float8, N> to_float8(const float (&x)[N]) {
    static_assert(N % 2 == 0);
    Vec<Float8, N> all;
    for (int i = 0; i < N; i += 2) {
        const uint16_t pair = to_float8_pair(x[i], x[i + 1]);
        memcpy(all.at + i, &pair, sizeof(pair));
    }
    return all;
}
__device__ inline Float8 to_float8(float x) { return {uint8_t(to_float8_pair(x, x))}; }

// ---- scales

// The largest size among numbers, for BlockReduce. Floats without a sign are ordered as their bits
// are, infinity behind all numbers and NaN behind infinity, so that a NaN is not lost.
struct Largest {
    uint32_t bits;
    __device__ static Largest identity() { return {0}; }
    // (One instruction where max.NaN is: of its operands a NaN is the largest.)
    __device__ void add(float x) {
#if PLAYGROUND_CUDA && __CUDA_ARCH__ >= 800
        float larger;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(__uint_as_float(bits)), "f"(fabsf(x)));
        bits = __float_as_uint(larger);
#else
        combine({__float_as_uint(fabsf(x))});
#endif
    }
    // (Numbers of two bytes are compared two at a time.)
    template <class T, int N, int K>
    __device__ void add(const Vec<T, N> (&all)[K]) {
#if PLAYGROUND_CUDA && __CUDA_ARCH__ >= 900
        if constexpr (sizeof(T) == 2) {
            uint32_t pairs[K * N / 2], largest = 0;
            memcpy(pairs, all, sizeof(all));
#pragma unroll
            for (uint32_t pair : pairs)
                asm("max.u16x2 %0, %0, %1;" : "+r"(largest) : "r"(pair & 0x7fff7fff));
            Vec<T, 2> both;
            memcpy(both.at, &largest, sizeof(largest));
            add(float(both[0])), add(float(both[1]));
            return;
        }
#endif
#pragma unroll
        for (const Vec<T, N>& vector : all) {
            float each[N];
            to_floats(vector, each);
#pragma unroll
            for (int i = 0; i < N; ++i) add(each[i]);
        }
    }
    template <class T, int N>
    __device__ void add(const Vec<T, N>& vector) {
        add(reinterpret_cast<const Vec<T, N>(&)[1]>(vector));
    }
    __device__ void combine(const Largest& other) { bits = other.bits > bits ? other.bits : bits; }
    __device__ Largest warp_reduce(int lanes) const {
        Largest all = *this;
        for (int bit = kWarp / 2; bit > 0; bit /= 2) {
            const uint32_t other = __shfl_xor_sync(0xffffffff, all.bits, bit);
            if (bit < lanes) all.combine({other});
        }
        return all;
    }
    // The divisor for numbers of this size: the largest quotient is 448. It has a lower bound, so
    // that no quotient overflows where all numbers are nearly 0.
    __device__ float scale() const {
        constexpr float inverse = 1 / 448.f;
        float largest = __uint_as_float(bits);
        if (largest < 1e-12f) largest = 1e-12f;
        // What a division rounds to, in fewer instructions.
        const float quotient = largest * inverse, lacking = fmaf(-quotient, 448.f, largest);
        return isfinite(largest) ? fmaf(lacking, inverse, quotient) : largest;
    }
};
