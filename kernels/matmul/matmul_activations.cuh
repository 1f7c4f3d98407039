// Activations for results of 16 bits, with as few instructions as that accuracy allows: the tensor
// cores idle during the epilogue.
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

// log2 of the upper tail of the normal distribution at x, which is nearly a parabola. The
// polynomials fit from 0 to 5.6, to 2^-18 for float16 and 2^-11 for bfloat16; beyond, where gelu is
// below 2^-23, they fall at least as fast.
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

// gelu(z) = relu(z) - |z| * tail(|z|). The bound avoids infinity * 0, which would be NaN.
template <class T>
__device__ float quick_gelu(float z) {
    const float x = fminf(fabsf(z), 13.2f);
    return larger_or_nan(z, 0) - x * quick_power_of_2(log2_beyond<T>(x));
}

// 1 / (1 + e) for e from 0 to 1, to 2^-16 for float16 and 2^-11 for bfloat16. A multiprocessor
// computes 16 reciprocals per clock, but 128 products.
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

// silu(z) = z / (1 + e^-z), and NaN for -infinity, as in PyTorch. With e = e^-|z| <= 1 it is z / (1
// + e) for z > 0 and z e / (1 + e) otherwise.
template <class T>
__device__ float quick_silu(float z) {
    const float e = quick_power_of_2(-kLog2E * fabsf(z));
    return (z > 0 ? z : z * e) * inverse_of_1_plus<T>(e);
}

// Applies act, of swiglu its silu, in place. T: the type of the result.
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

// Calls f with act as a compile-time constant, so that each act has code of its own: testing act
// between groups of columns costs up to 2% on an H200.
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
