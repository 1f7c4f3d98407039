// cuRAND's generators for kernels: XORWOW, Philox4x32-10, MRG32k3a and Sobol's sequences, with the
// numbers of CUDA's own header of this name.
//
// curand, curand_uniform and their like give CUDA's numbers bit for bit; normal and log-normal
// numbers are made of the same ones, and differ by as much as the processor's logf and sinf differ
// from a GPU's. curand_poisson gives CUDA's numbers where lambda is below 64 or above 4000; between
// the two it draws by another method, and its numbers are others of the same distribution.
#pragma once
#define CURAND_KERNEL_H_
#include "simulator/curand_states.h"

// ---- Uniform numbers, from just above 0 to 1

namespace simulator {

SIMULATOR_INLINE float uniform(unsigned x) { return x * 0x1p-32f + 0x1p-33f; }
SIMULATOR_INLINE float uniform(unsigned long long x) { return uniform(unsigned(x >> 32)); }
SIMULATOR_INLINE double uniform_double(unsigned x) { return x * 0x1p-32 + 0x1p-32; }
SIMULATOR_INLINE double uniform_double(unsigned long long x) {
    return double(x >> 11) * 0x1p-53 + 0x1p-54;
}
// 53 bits of two words.
SIMULATOR_INLINE double uniform_double(unsigned x, unsigned y) {
    return double(x ^ (unsigned long long)y << 21) * 0x1p-53 + 0x1p-54;
}

constexpr double mrg_scale = 2.3283065498378288e-10;  // 1 / mrg_m1, nearly

}  // namespace simulator

template <class State>
SIMULATOR_INLINE float curand_uniform(State* state) {
    return simulator::uniform(curand(state));
}
SIMULATOR_INLINE float curand_uniform(curandStateMRG32k3a* state) {
    return float(simulator::next(state) * simulator::mrg_scale);
}
template <class State>
SIMULATOR_INLINE double curand_uniform_double(State* state) {
    return simulator::uniform_double(curand(state));
}
SIMULATOR_INLINE double curand_uniform_double(curandStateXORWOW* state) {
    const unsigned x = curand(state), y = curand(state);
    return simulator::uniform_double(x, y);
}
SIMULATOR_INLINE double curand_uniform_double(curandStateMRG32k3a* state) {
    return simulator::next(state) * simulator::mrg_scale;
}
SIMULATOR_INLINE float4 curand_uniform4(curandStatePhilox4_32_10* state) {
    const uint4 x = curand4(state);
    using simulator::uniform;
    return {uniform(x.x), uniform(x.y), uniform(x.z), uniform(x.w)};
}
SIMULATOR_INLINE double2 curand_uniform2_double(curandStatePhilox4_32_10* state) {
    const uint4 x = curand4(state);
    return {simulator::uniform_double(x.x, x.y), simulator::uniform_double(x.z, x.w)};
}
SIMULATOR_INLINE double4 curand_uniform4_double(curandStatePhilox4_32_10* state) {
    const double2 a = curand_uniform2_double(state), b = curand_uniform2_double(state);
    return {a.x, a.y, b.x, b.y};
}

// ---- Normal numbers: Box and Muller's transform, sine first

namespace simulator {

SIMULATOR_INLINE float2 box_muller(float u, float angle) {
    const float radius = sqrtf(-2 * logf(u));
    return {radius * sinf(angle), radius * cosf(angle)};
}
SIMULATOR_INLINE float2 box_muller(unsigned x, unsigned y) {
    constexpr float step = 0x1p-32f * 6.2831855f;
    return box_muller(uniform(x), fmaf(float(y), step, step / 2));
}
SIMULATOR_INLINE double2 box_muller_double(double u, double half_turns) {
    const double radius = sqrt(-2 * log(u));
    double sine, cosine;
    sine_cosine_pi(half_turns, &sine, &cosine);
    return {radius * sine, radius * cosine};
}

template <class State>
SIMULATOR_INLINE float2 normal_pair(State* state) {
    const unsigned x = curand(state), y = curand(state);
    return box_muller(x, y);
}
SIMULATOR_INLINE float2 normal_pair(curandStateMRG32k3a* state) {
    const float u = curand_uniform(state);
    return box_muller(u, curand_uniform(state) * 6.2831855f);
}
template <class State>
SIMULATOR_INLINE double2 normal_pair_double(State* state) {
    const unsigned a = curand(state), b = curand(state), c = curand(state), d = curand(state);
    return box_muller_double(uniform_double(a, b), 2 * uniform_double(c, d));
}
SIMULATOR_INLINE double2 normal_pair_double(curandStateMRG32k3a* state) {
    const double u = curand_uniform_double(state);
    return box_muller_double(u, curand_uniform_double(state) * 2);
}

// The inverse of the normal distribution, for the sequences that must not draw twice: x in the
// middle of its part of 2^bits, and the upper half as the lower one's mirror image.
template <class T, class Inverse>
SIMULATOR_INLINE T inverse_normal(unsigned long long x, int bits, T step, Inverse inverse) {
    const unsigned long long half = 1ull << (bits - 1);
    const bool upper = x > half;
    const T p = T(upper ? 2 * half - 1 - x : x) * step + step / 2;
    const T result = T(root_two) * inverse(2 * p);
    return upper ? result : -result;
}
SIMULATOR_INLINE float inverse_normal(unsigned x) {
    return inverse_normal(x, 32, 0x1p-32f, [](float p) { return erfcinvf(p); });
}
SIMULATOR_INLINE float inverse_normal(unsigned long long x) {
    return inverse_normal(unsigned(x >> 32));
}
SIMULATOR_INLINE double inverse_normal_double(unsigned x) {
    return inverse_normal(x, 32, 0x1p-32, [](double p) { return erfcinv(p); });
}
SIMULATOR_INLINE double inverse_normal_double(unsigned long long x) {
    return inverse_normal(x >> 11, 53, 0x1p-53, [](double p) { return erfcinv(p); });
}

// Calls in turn get the first and the second of a pair; the second waits in the state.
template <class T, class Pair>
SIMULATOR_INLINE T one_of_pair(int& flag, T& spare, int kind, Pair pair) {
    if (flag == kind) {
        flag = 0;
        return spare;
    }
    const auto two = pair();
    spare = two.y;
    flag = kind;
    return two.x;
}

}  // namespace simulator

#define SIMULATOR_CURAND_NORMALS(State)                                                            \
    SIMULATOR_INLINE float2 curand_normal2(State* state) { return simulator::normal_pair(state); } \
    SIMULATOR_INLINE double2 curand_normal2_double(State* state) {                                 \
        return simulator::normal_pair_double(state);                                               \
    }                                                                                              \
    SIMULATOR_INLINE float2 curand_log_normal2(State* state, float mean, float stddev) {           \
        const float2 v = curand_normal2(state);                                                    \
        return {expf(mean + stddev * v.x), expf(mean + stddev * v.y)};                             \
    }                                                                                              \
    SIMULATOR_INLINE double2 curand_log_normal2_double(State* state, double mean, double stddev) { \
        const double2 v = curand_normal2_double(state);                                            \
        return {exp(mean + stddev * v.x), exp(mean + stddev * v.y)};                               \
    }                                                                                              \
    SIMULATOR_INLINE float curand_normal(State* state) {                                           \
        return simulator::one_of_pair(                                                             \
            state->spares.boxmuller_flag, state->spares.boxmuller_extra,                           \
            simulator::Spares::normal, [&] { return curand_normal2(state); });                     \
    }                                                                                              \
    SIMULATOR_INLINE double curand_normal_double(State* state) {                                   \
        return simulator::one_of_pair(                                                             \
            state->spares.boxmuller_flag_double, state->spares.boxmuller_extra_double,             \
            simulator::Spares::normal, [&] { return curand_normal2_double(state); });              \
    }                                                                                              \
    SIMULATOR_INLINE float curand_log_normal(State* state, float mean, float stddev) {             \
        return simulator::one_of_pair(state->spares.boxmuller_flag, state->spares.boxmuller_extra, \
                                      simulator::Spares::log_normal,                               \
                                      [&] { return curand_log_normal2(state, mean, stddev); });    \
    }                                                                                              \
    SIMULATOR_INLINE double curand_log_normal_double(State* state, double mean, double stddev) {   \
        return simulator::one_of_pair(                                                             \
            state->spares.boxmuller_flag_double, state->spares.boxmuller_extra_double,             \
            simulator::Spares::log_normal,                                                         \
            [&] { return curand_log_normal2_double(state, mean, stddev); });                       \
    }
SIMULATOR_CURAND_NORMALS(curandStateXORWOW)
SIMULATOR_CURAND_NORMALS(curandStatePhilox4_32_10)
SIMULATOR_CURAND_NORMALS(curandStateMRG32k3a)
#undef SIMULATOR_CURAND_NORMALS

SIMULATOR_INLINE float4 curand_normal4(curandStatePhilox4_32_10* state) {
    const uint4 x = curand4(state);
    const float2 a = simulator::box_muller(x.x, x.y), b = simulator::box_muller(x.z, x.w);
    return {a.x, a.y, b.x, b.y};
}
SIMULATOR_INLINE float4 curand_log_normal4(curandStatePhilox4_32_10* state, float mean,
                                           float stddev) {
    const float4 v = curand_normal4(state);
    return {expf(mean + stddev * v.x), expf(mean + stddev * v.y), expf(mean + stddev * v.z),
            expf(mean + stddev * v.w)};
}
SIMULATOR_INLINE double4 curand_normal4_double(curandStatePhilox4_32_10* state) {
    const double2 a = curand_normal2_double(state), b = curand_normal2_double(state);
    return {a.x, a.y, b.x, b.y};
}
SIMULATOR_INLINE double4 curand_log_normal4_double(curandStatePhilox4_32_10* state, double mean,
                                                   double stddev) {
    const double4 v = curand_normal4_double(state);
    return {exp(mean + stddev * v.x), exp(mean + stddev * v.y), exp(mean + stddev * v.z),
            exp(mean + stddev * v.w)};
}

template <class Word, bool scrambled>
SIMULATOR_INLINE float curand_normal(simulator::Sobol<Word, scrambled>* state) {
    return simulator::inverse_normal(curand(state));
}
template <class Word, bool scrambled>
SIMULATOR_INLINE double curand_normal_double(simulator::Sobol<Word, scrambled>* state) {
    return simulator::inverse_normal_double(curand(state));
}
template <class Word, bool scrambled>
SIMULATOR_INLINE float curand_log_normal(simulator::Sobol<Word, scrambled>* state, float mean,
                                         float stddev) {
    return expf(mean + stddev * curand_normal(state));
}
template <class Word, bool scrambled>
SIMULATOR_INLINE double curand_log_normal_double(simulator::Sobol<Word, scrambled>* state,
                                                 double mean, double stddev) {
    return exp(mean + stddev * curand_normal_double(state));
}

// ---- Poisson

namespace simulator {

// Hormann, "The transformed rejection method for generating Poisson random variables" (1993).
template <class State>
unsigned poisson_by_rejection(State* state, double lambda) {
    const double b = 0.931 + 2.53 * sqrt(lambda), a = -0.059 + 0.02483 * b;
    const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), quick = 0.9277 - 3.6224 / (b - 2);
    while (true) {
        const double u = curand_uniform_double(state) - 0.5, v = curand_uniform_double(state);
        const double us = 0.5 - fabs(u), k = floor((2 * a / us + b) * u + lambda + 0.43);
        if (us >= 0.07 && v <= quick) return unsigned(k);
        if (k < 0 || (us < 0.013 && v > us)) continue;
        int sign;
        if (log(v * inverse_alpha / (a / (us * us) + b)) <=
            k * log(lambda) - lambda - lgamma_r(k + 1, &sign))
            return unsigned(k);
    }
}

}  // namespace simulator

template <class State>
unsigned curand_poisson(State* state, double lambda) {
    if (lambda > 4000) return unsigned(sqrt(lambda) * curand_normal_double(state) + lambda + 0.5);
    if (lambda >= 64) return simulator::poisson_by_rejection(state, lambda);
    // Knuth: as many factors as the product can take before it falls to exp(-lambda).
    unsigned count = 0;
    for (float product = expf(float(lambda)); (product *= curand_uniform(state)) > 1;) count++;
    return count;
}
template <class Word, bool scrambled>
unsigned curand_poisson(simulator::Sobol<Word, scrambled>*, double) {
    static_assert(sizeof(Word) == 0, "the simulator has no curand_poisson for Sobol's sequences");
    return 0;
}
inline uint4 curand_poisson4(curandStatePhilox4_32_10* state, double lambda) {
    if (lambda > 4000) {
        const double4 v = curand_normal4_double(state);
        const auto at = [=](double x) { return unsigned(sqrt(lambda) * x + lambda + 0.5); };
        return {at(v.x), at(v.y), at(v.z), at(v.w)};
    }
    return {curand_poisson(state, lambda), curand_poisson(state, lambda),
            curand_poisson(state, lambda), curand_poisson(state, lambda)};
}
