// The statistics of a softmax: the largest x of a row, and the sum of e^(x - largest).
#pragma once

#include <math.h>

#include "rows.cuh"

// Powers of 2 are computed of x * factor - shift, in one fused operation. From this shift on, its
// rounding error is a whole number or more, so that the largest power would not be 1. So then it is
// subtracted before x is multiplied, which is exact where it matters.
constexpr float kLargeShift = 1 << 23;

// e^x for x <= 0, exact enough for results that are rounded to T.
template <class T>
__device__ Acc<T> exponential(Acc<T> x) {
#if PLAYGROUND_CUDA
    if constexpr (sizeof(T) == 2) return quick_power_of_2(x * kLog2E);
#endif
    return exp(x);
}

// a / b as a factor, with its rounding error unless T is a 2-byte type, where it would not show: so
// a product with it is rounded once, and the results of a row have no common bias.
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

// One or two times -infinity, in four bytes.
template <class T>
constexpr uint32_t kMinusInfinity = 0;
template <>
constexpr uint32_t kMinusInfinity<float> = 0xff800000;
template <>
constexpr uint32_t kMinusInfinity<Half> = 0xfc00fc00;
template <>
constexpr uint32_t kMinusInfinity<BFloat16> = 0xff80ff80;

// The identity of the max.
template <class T, int V>
__device__ Vec<T, V> minus_infinities() {
    uint32_t words[V * sizeof(T) / 4];
    for (uint32_t& word : words) word = kMinusInfinity<T>;
    Vec<T, V> v;
    memcpy(v.at, words, sizeof(words));
    return v;
}

// NaN is ignored here. It comes back in the sum, because e^NaN is NaN.
__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return fmax(a, b); }

template <class A>
__device__ A warp_max(A value, int lanes = kWarp) {
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        const A other = __shfl_xor_sync(0xffffffff, value, bit);
        if (bit < lanes) value = larger(value, other);
    }
    return value;
}

#if PLAYGROUND_CUDA && __CUDA_ARCH__ >= 800

// Two comparisons at a time, of the lower and the upper halves.
__device__ inline uint32_t larger_pair(uint32_t a, uint32_t b, Half) {
    asm("max.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
}
__device__ inline uint32_t larger_pair(uint32_t a, uint32_t b, BFloat16) {
    asm("max.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
}

// (Two chains of comparisons: a tree would need a register for each pair.)
template <class T, int V, int N>
__device__ float largest(const Vec<T, V> (&v)[N]) {
    constexpr int kPairs = N * V / 2;
    uint32_t pairs[kPairs];
    memcpy(pairs, v, sizeof(pairs));
#pragma unroll
    for (int i = 2; i < kPairs; ++i) pairs[i % 2] = larger_pair(pairs[i % 2], pairs[i], T());
    T last[4];
    memcpy(last, pairs, sizeof(last));
    return larger(larger(float(last[0]), float(last[1])), larger(float(last[2]), float(last[3])));
}

template <int V, int N>
__device__ float largest(const Vec<float, V> (&v)[N]) {
    float most = v[0][0];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        for (float number : v[n].at) most = larger(most, number);
    }
    return most;
}

#else

template <class T, int V, int N>
__device__ Acc<T> largest(const Vec<T, V> (&v)[N]) {
    Acc<T> most = v[0][0];
    for (const Vec<T, V>& vector : v) {
        for (T number : vector.at) most = larger(most, Acc<T>(number));
    }
    return most;
}

#endif

// Both statistics of some numbers in one pass (M. Milakov, N. Gimelshein, "Online normalizer
// calculation for softmax", 2018): whenever the max grows, the sum is scaled down. As in PyTorch, a
// NaN or an infinity among the numbers makes the sum NaN.
template <class T>
struct OnlineSoftmax {
    using A = Acc<T>;
    A max, sum;

    __device__ static OnlineSoftmax identity() { return {-A(INFINITY), 0}; }

    // The factor from a sum of e^(x - from) to one of e^(x - to), for from <= to.
    __device__ static A scale(A from, A to) {
        return from == to ? A(1) : exponential<T>(from - to);
    }

    // What to subtract before e^x. While all are -infinity, e^x is 0 and not NaN.
    __device__ A shift() const { return max == -A(INFINITY) ? A(0) : max; }

    // Raises the max to at least x.
    __device__ void raise(A x) {
        const A before = max;
        max = larger(max, x);
        sum *= exponential<T>(before - shift());
    }

    // Adds a number to which the max has been raised before, given the shift.
    __device__ void add(A x, A shift) { sum += exponential<T>(x - shift); }

    // Adds many numbers to which the max has been raised before.
    template <int V, int N>
    __device__ void add(const Vec<T, V> (&v)[N]) {
        const A from = shift();
#if PLAYGROUND_CUDA
        if constexpr (sizeof(T) == 2) {
            // 2^(x * log2(e) - shift) in one fused operation and the power. The rounding error of
            // the shift is the same factor for all: it is taken out of their sum.
            if (fabsf(from) < kLargeShift) {
                const float rounded = from * kLog2E;
                float powers = 0;
#pragma unroll
                for (int n = 0; n < N; ++n) {
                    for (T x : v[n].at) powers += quick_power_of_2(fmaf(A(x), kLog2E, -rounded));
                }
                sum = fmaf(powers, quick_power_of_2(fmaf(-from, kLog2E, rounded)), sum);
                return;
            }
        }
#endif
#pragma unroll
        for (int n = 0; n < N; ++n) {
            for (T x : v[n].at) add(A(x), from);
        }
    }

    // Combines with another one.
    __device__ void combine(OnlineSoftmax other) {
        const A all = larger(max, other.max);
        sum = sum * scale(max, all) + other.sum * scale(other.max, all);
        max = all;
    }

    __device__ OnlineSoftmax warp_reduce(int lanes) const {
        const A all = warp_max(max, lanes);
        return {all, warp_sum(sum * scale(max, all), lanes)};
    }
};
