// cuRAND's generators for kernels: XORWOW, Philox4x32-10, MRG32k3a and Sobol's sequences, with the
// numbers of CUDA's own header of this name.
//
// curand, curand_uniform and their like give CUDA's numbers bit for bit; normal and log-normal
// numbers are made of the same ones, and differ by as much as the processor's logf and sinf differ
// from a GPU's. curand_poisson gives CUDA's numbers where lambda is below 64 or above 4000; between
// the two it draws by another method, and its numbers are others of the same distribution.
#pragma once
#define CURAND_KERNEL_H_
#include "curand.h"
#include "simulator/intrinsics.h"
#include "simulator/skip_ahead.h"
#include "simulator/special.h"

namespace simulator {

// The second number of a pair that a call has left for the next one of its kind.
struct Spares {
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;

    static constexpr int normal = 1, log_normal = 2;
};

}  // namespace simulator

// Marsaglia, "Xorshift RNGs" (2003): a shift register of five words, and a counter.
struct curandStateXORWOW {
    unsigned d, v[5];
    simulator::Spares spares;
};
using curandStateXORWOW_t = curandStateXORWOW;
using curandState = curandStateXORWOW;
using curandState_t = curandStateXORWOW;

// Salmon and others, "Parallel random numbers: as easy as 1, 2, 3" (2011). STATE says how many of
// the four words of `output` have been handed out.
struct curandStatePhilox4_32_10 {
    uint4 ctr, output;
    uint2 key;
    unsigned STATE;
    simulator::Spares spares;
};
using curandStatePhilox4_32_10_t = curandStatePhilox4_32_10;

// L'Ecuyer, "Good parameters and implementations for combined multiple recursive random number
// generators" (1999).
struct curandStateMRG32k3a {
    unsigned s1[3], s2[3];
    simulator::Spares spares;
};
using curandStateMRG32k3a_t = curandStateMRG32k3a;

// Sobol's sequence in one dimension, in the order of Gray code (Antonov and Saleev); c is what a
// scrambled one is shifted by.
namespace simulator {
template <class Word, bool scrambled>
struct Sobol {
    Word i, x, c;
    Word direction_vectors[8 * sizeof(Word)];
};
}  // namespace simulator
using curandStateSobol32 = simulator::Sobol<unsigned, false>;
using curandStateSobol64 = simulator::Sobol<unsigned long long, false>;
using curandStateScrambledSobol32 = simulator::Sobol<unsigned, true>;
using curandStateScrambledSobol64 = simulator::Sobol<unsigned long long, true>;
using curandStateSobol32_t = curandStateSobol32;
using curandStateSobol64_t = curandStateSobol64;
using curandStateScrambledSobol32_t = curandStateScrambledSobol32;
using curandStateScrambledSobol64_t = curandStateScrambledSobol64;

// ---- XORWOW

SIMULATOR_INLINE unsigned curand(curandStateXORWOW* state) {
    unsigned* v = state->v;
    const unsigned t = v[0] ^ v[0] >> 2, last = v[4];
    v[0] = v[1], v[1] = v[2], v[2] = v[3], v[3] = last;
    v[4] = last ^ last << 4 ^ t ^ t << 1;
    return v[4] + (state->d += 362437);
}

namespace simulator {
inline void skip(curandStateXORWOW* state, unsigned long long n, unsigned power) {
    if (!n) return;
    uint32_t words[5];
    for (int i = 0; i < 5; i++) words[i] = state->v[i];
    skip_xorwow(words, n, power);
    for (int i = 0; i < 5; i++) state->v[i] = words[i];
}
}  // namespace simulator

inline void skipahead(unsigned long long n, curandStateXORWOW* state) {
    simulator::skip(state, n, 0);
    state->d += 362437 * unsigned(n);
}
// A sequence has 2^67 numbers, after which the counter is where it was.
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW* state) {
    simulator::skip(state, n, 67);
}

inline void curand_init(unsigned long long seed, unsigned long long sequence,
                        unsigned long long offset, curandStateXORWOW* state) {
    const unsigned low = 1099087573u * (unsigned(seed) ^ 0xaad26b49u);
    const unsigned high = 2591861531u * (unsigned(seed >> 32) ^ 0xf7dcefddu);
    *state = {
        6615241u + high + low,
        {123456789u + low, 362436069u ^ low, 521288629u + high, 88675123u ^ high, 5783321u + low},
        {}};
    skipahead_sequence(sequence, state);
    skipahead(offset, state);
}

// ---- Philox4x32-10

namespace simulator {

inline uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; round++) {
        const unsigned long long a = 0xD2511F53ull * counter.x, b = 0xCD9E8D57ull * counter.z;
        counter = {unsigned(b >> 32) ^ counter.y ^ key.x, unsigned(b),
                   unsigned(a >> 32) ^ counter.w ^ key.y, unsigned(a)};
        key = {key.x + 0x9E3779B9u, key.y + 0xBB67AE85u};
    }
    return counter;
}

SIMULATOR_INLINE void advance(curandStatePhilox4_32_10* state, unsigned __int128 n) {
    uint4& c = state->ctr;
    unsigned __int128 count = ((unsigned long long)c.w << 32 | c.z);
    count = (count << 64 | ((unsigned long long)c.y << 32 | c.x)) + n;
    c = {unsigned(count), unsigned(count >> 32), unsigned(count >> 64), unsigned(count >> 96)};
    state->output = philox(c, state->key);
}

SIMULATOR_INLINE unsigned word(const uint4& four, unsigned i) {
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

}  // namespace simulator

SIMULATOR_INLINE unsigned curand(curandStatePhilox4_32_10* state) {
    const unsigned result = simulator::word(state->output, state->STATE);
    if (++state->STATE == 4) {
        simulator::advance(state, 1);
        state->STATE = 0;
    }
    return result;
}

SIMULATOR_INLINE uint4 curand4(curandStatePhilox4_32_10* state) {
    const uint4 old = state->output;
    const unsigned taken = state->STATE;
    simulator::advance(state, 1);
    const auto at = [&](unsigned i) {
        return i < 4 ? simulator::word(old, i) : simulator::word(state->output, i - 4);
    };
    return {at(taken), at(taken + 1), at(taken + 2), at(taken + 3)};
}

inline void skipahead(unsigned long long n, curandStatePhilox4_32_10* state) {
    const unsigned taken = state->STATE + unsigned(n & 3);
    state->STATE = taken & 3;
    simulator::advance(state, n / 4 + taken / 4);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* state) {
    simulator::advance(state, (unsigned __int128)n << 64);
}

inline void curand_init(unsigned long long seed, unsigned long long sequence,
                        unsigned long long offset, curandStatePhilox4_32_10* state) {
    *state = {{}, {}, {unsigned(seed), unsigned(seed >> 32)}, 0, {}};
    state->ctr.z = unsigned(sequence);
    state->ctr.w = unsigned(sequence >> 32);
    skipahead(offset, state);
}

// ---- MRG32k3a

namespace simulator {

constexpr unsigned long long mrg_m1 = 4294967087, mrg_m2 = 4294944443;

// From 1 to mrg_m1.
SIMULATOR_INLINE double next(curandStateMRG32k3a* state) {
    unsigned *a = state->s1, *b = state->s2;
    const unsigned long long x = (1403580ull * a[1] + 810728ull * (mrg_m1 - a[0])) % mrg_m1;
    const unsigned long long y = (527612ull * b[2] + 1370589ull * (mrg_m2 - b[0])) % mrg_m2;
    a[0] = a[1], a[1] = a[2], a[2] = unsigned(x);
    b[0] = b[1], b[1] = b[2], b[2] = unsigned(y);
    return double(x > y ? x - y : x - y + mrg_m1);
}

inline void skip(curandStateMRG32k3a* state, unsigned long long n, unsigned power) {
    if (!n) return;
    uint32_t first[3], second[3];
    for (int i = 0; i < 3; i++) first[i] = state->s1[i], second[i] = state->s2[i];
    skip_mrg32k3a(first, second, n, power);
    for (int i = 0; i < 3; i++) state->s1[i] = first[i], state->s2[i] = second[i];
}

}  // namespace simulator

SIMULATOR_INLINE unsigned curand(curandStateMRG32k3a* state) {
    return unsigned(simulator::next(state) * 1.000000048662);
}

inline void skipahead(unsigned long long n, curandStateMRG32k3a* state) {
    simulator::skip(state, n, 0);
}
inline void skipahead_subsequence(unsigned long long n, curandStateMRG32k3a* state) {
    simulator::skip(state, n, 76);
}
inline void skipahead_sequence(unsigned long long n, curandStateMRG32k3a* state) {
    simulator::skip(state, n, 127);
}

inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                        unsigned long long offset, curandStateMRG32k3a* state) {
    const unsigned long long low = seed ? unsigned(seed) ^ 0x55555555u : 1;
    const unsigned long long high = seed ? unsigned(seed >> 32) ^ 0xaaaaaaaau : 1;
    const auto times = [](unsigned long long x, unsigned long long modulus) {
        return unsigned(x * 12345 % modulus);
    };
    using namespace simulator;
    *state = {{times(low, mrg_m1), times(high, mrg_m1), times(low, mrg_m1)},
              {times(high, mrg_m2), times(low, mrg_m2), times(high, mrg_m2)},
              {}};
    skipahead_subsequence(subsequence, state);
    skipahead(offset, state);
}

// ---- Sobol

template <class Word, bool scrambled>
SIMULATOR_INLINE Word curand(simulator::Sobol<Word, scrambled>* state) {
    constexpr int bits = 8 * sizeof(Word);
    const Word result = state->x, zeros = ~state->i++;
    const int bit = zeros ? __builtin_ctzll(zeros) : bits - 1;
    state->x ^= state->direction_vectors[bit];
    return result;
}

template <class Word, bool scrambled>
void skipahead(unsigned long long n, simulator::Sobol<Word, scrambled>* state) {
    state->i += Word(n);
    state->x = state->c;
    const Word gray = state->i ^ state->i >> 1;
    for (unsigned bit = 0; bit < 8 * sizeof(Word); bit++)
        if (gray >> bit & 1) state->x ^= state->direction_vectors[bit];
}

namespace simulator {
template <class Word, bool scrambled>
void start(const Word* vectors, Word shift, Word offset, Sobol<Word, scrambled>* state) {
    state->i = 0;
    state->c = shift;
    for (unsigned i = 0; i < 8 * sizeof(Word); i++) state->direction_vectors[i] = vectors[i];
    skipahead(offset, state);
}
}  // namespace simulator

inline void curand_init(curandDirectionVectors32_t vectors, unsigned offset,
                        curandStateSobol32* state) {
    simulator::start(vectors, 0u, offset, state);
}
inline void curand_init(curandDirectionVectors32_t vectors, unsigned shift, unsigned offset,
                        curandStateScrambledSobol32* state) {
    simulator::start(vectors, shift, offset, state);
}
inline void curand_init(curandDirectionVectors64_t vectors, unsigned long long offset,
                        curandStateSobol64* state) {
    simulator::start(vectors, 0ull, offset, state);
}
inline void curand_init(curandDirectionVectors64_t vectors, unsigned long long shift,
                        unsigned long long offset, curandStateScrambledSobol64* state) {
    simulator::start(vectors, shift, offset, state);
}

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
