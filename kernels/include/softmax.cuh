// The statistics of a softmax: the largest x of a row, and the sum of e^(x - largest).
#pragma once

#include <math.h>

#include "cluster.cuh"
#include "reduce.cuh"

// e^x for x <= 0, exact enough for results that are rounded to T. For a 2-byte type that is one
// multiplication and the GPU's own 2^x, which is right to 22 bits and takes what is below 2^-126
// for 0.
template <class T>
__device__ Acc<T> exponential(Acc<T> x) {
#if PLAYGROUND_CUDA
    if constexpr (sizeof(T) == 2) {
        constexpr float log2_e = 1.442695041f;
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * log2_e));
        return y;
    }
#endif
    return exp(x);
}

// a / b as a factor, with what rounding it has lost unless T is a 2-byte type, which would not show
// it: so a product with it is rounded once, and a row's results are not all too large or too small.
template <class T>
struct Ratio {
    using A = Acc<T>;
    A rounded, lost;
    __device__ Ratio(A a, A b) : rounded(a / b), lost(0) {
        if constexpr (sizeof(T) > 2) lost = fma(-rounded, b, a) / b;
    }
    __device__ A operator*(A p) const {
        if constexpr (sizeof(T) == 2) return p * rounded;
        return fma(p, rounded, p * lost);
    }
    // p times the ratio, less c.
    __device__ A times_less(A p, A c) const {
        if constexpr (sizeof(T) == 2) return fma(p, rounded, -c);
        return fma(p, rounded, fma(p, lost, -c));
    }
};

// A NaN is passed over. It comes back in the sum, for e^NaN is NaN.
__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return fmax(a, b); }

template <class A>
__device__ A warp_max(A value, int lanes = kWarp) {
    for (int bit = lanes / 2; bit > 0; bit /= 2) {
        value = larger(value, __shfl_xor_sync(0xffffffff, value, bit));
    }
    return value;
}

// Both statistics of some numbers, in one pass over them (M. Milakov, N. Gimelshein, "Online
// normalizer calculation for softmax", 2018): whenever the max grows, the sum is scaled down.
// As in PyTorch, a NaN or an infinity among the numbers makes the sum a NaN.
template <class T>
struct Soft {
    using A = Acc<T>;
    A max, sum;

    __device__ static Soft of_nothing() { return {-A(INFINITY), 0}; }

    // What turns a sum of e^(x - from) into one of e^(x - to), for from <= to.
    __device__ static A scale(A from, A to) {
        return from == to ? A(1) : exponential<T>(from - to);
    }

    // What to subtract before taking e^x. While all are -infinity, e^x is 0 and not a NaN.
    __device__ A shift() const { return max == -A(INFINITY) ? A(0) : max; }

    // Makes the max at least x.
    __device__ void raise(A x) {
        const A before = max;
        max = larger(max, x);
        sum *= exponential<T>(before - shift());
    }

    // Takes in a number that the max has been raised to before, given the shift.
    __device__ void add(A x, A shift) { sum += exponential<T>(x - shift); }

    // Takes the numbers in that another one has.
    __device__ void take(Soft other) {
        const A all = larger(max, other.max);
        sum = sum * scale(max, all) + other.sum * scale(other.max, all);
        max = all;
    }

    __device__ Soft across(int lanes) const {
        const A all = warp_max(max, lanes);
        return {all, warp_sum(sum * scale(max, all), lanes)};
    }
};
