// act, where its result is then rounded to 16 bits, in as few instructions as that allows: nothing
// is multiplied while a tile's sums are made y.
#pragma once

#include "matmul_product.cuh"

// The larger number; NaN if one of them is.
__device__ inline float larger_or_nan(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

template <int N>
__device__ float polynomial(const float (&factors)[N], float x) {
    float sum = factors[0];
#pragma unroll
    for (int i = 1; i < N; ++i) sum = sum * x + factors[i];
    return sum;
}

// The logarithm, to base 2, of what the normal distribution has beyond x, which is nearly a
// parabola. Fits for 0 to 5.6, right to 2^-18 for float16 and to 2^-11 for bfloat16; beyond, where
// gelu is less than 2^-23, they fall as fast or a little faster.
template <class T>
__device__ float log2_beyond(float x) {
    if constexpr (IsHalf<T>::value) {
        constexpr float fit[] = {
            -1.8287314e-06f, 6.1494896e-05f,  -9.2984708e-04f, 8.5057371e-03f,
            -5.395665e-02f,  -4.5846689e-01f, -1.1512504f,     -9.9999532e-01f};
        return polynomial(fit, x);
    } else {
        constexpr float fit[] = {-2.2654643e-04f, 4.7871569e-03f, -4.4248179e-02f,
                                 -4.7027727e-01f, -1.1459152f,    -1.0003901f};
        return polynomial(fit, x);
    }
}

// What relu is, less |z| times what the normal distribution has beyond |z|. The bound is for
// infinity, whose product with 0 would be NaN.
template <class T>
__device__ float quick_gelu(float z) {
    const float x = fminf(fabsf(z), 13.2f);
    return larger_or_nan(z, 0) - x * quick_power_of_2(log2_beyond<T>(x));
}

// 1 / (1 + e) for 0 to 1, right to 2^-16 for float16 and to 2^-11 for bfloat16. A multiprocessor
// takes 16 inverses a clock, and 128 products.
template <class T>
__device__ float inverse_of_1_plus(float e) {
    if constexpr (IsHalf<T>::value) {
        constexpr float fit[] = {0.0717068f,  -0.32268059f, 0.66776957f, -0.90305751f,
                                 0.98540831f, -0.99913343f, 0.99999125f};
        return polynomial(fit, e);
    } else {
        constexpr float fit[] = {0.15224501f, -0.53285755f, 0.86589354f, -0.98483497f, 0.99970265f};
        return polynomial(fit, e);
    }
}

// z / (1 + e^-z), and NaN for -infinity, as PyTorch has it. Of e = e^-|z|, which is no larger than
// 1, that is z / (1 + e) for a z above 0 and z e / (1 + e) below.
template <class T>
__device__ float quick_silu(float z) {
    const float e = quick_power_of_2(-kLog2E * fabsf(z));
    return (z > 0 ? z : z * e) * inverse_of_1_plus<T>(e);
}

// z made to act(z), and with swiglu to silu(z). T: what it is rounded to.
template <Act act, class T, int N>
__device__ void activate(float (&z)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        if constexpr (act == kRelu) {
            z[i] = larger_or_nan(z[i], 0), z[i + 1] = larger_or_nan(z[i + 1], 0);
        } else if constexpr (act == kGelu) {
            z[i] = quick_gelu<T>(z[i]), z[i + 1] = quick_gelu<T>(z[i + 1]);
        } else if constexpr (act == kSilu || act == kSwiglu) {
            z[i] = quick_silu<T>(z[i]), z[i + 1] = quick_silu<T>(z[i + 1]);
        }
    }
}

// Calls f with act as a constant, so that each act has code of its own: to ask for act between two
// groups of columns costs a product up to 2% on an H200.
template <class F>
__device__ void with_act(Act act, F&& f) {
    switch (act) {
        case kRelu:
            return f(std::integral_constant<Act, kRelu>());
        case kGelu:
            return f(std::integral_constant<Act, kGelu>());
        case kSilu:
            return f(std::integral_constant<Act, kSilu>());
        case kSwiglu:
            return f(std::integral_constant<Act, kSwiglu>());
        default:
            return f(std::integral_constant<Act, kNone>());
    }
}
