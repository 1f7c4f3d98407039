// The states of cuRAND's generators for kernels, how they begin and how they skip ahead.
#pragma once
#include "../curand.h"
#include "intrinsics.h"
#include "skip_ahead.h"
#include "special.h"

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
