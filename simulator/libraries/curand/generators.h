// The generators of cuRAND's host API: numbers of many sequences of curand_kernel.h's generators,
// which take turns.
//
// cuRAND's order is that of the threads of its kernels. XORWOW has 4096 sequences, 2^67 numbers
// apart, and takes one number of each in turn; MRG32k3a has 81920 (in the legacy ordering 4096),
// 2^76 apart; Philox has 65536 and takes four of each. A pair of normal numbers comes of one
// sequence in one turn.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>
#include "../../include/curand_kernel.h"

namespace simulator {
namespace {

// Joe and Kuo's primitive polynomials and first direction numbers ("Constructing Sobol sequences
// with better two-dimensional projections", 2008) for the dimensions after the first. A
// polynomial's highest and lowest terms are left out.
struct JoeKuo {
    int degree;
    unsigned polynomial, first[7];
};
constexpr JoeKuo joe_kuo[] = {
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
};
constexpr unsigned most_dimensions = 1 + sizeof(joe_kuo) / sizeof(joe_kuo[0]);

template <class Word>
using Vectors = Word[8 * sizeof(Word)];

template <class Word>
void fill_vectors(Vectors<Word>& vectors, unsigned dimension) {
    constexpr int bits = 8 * sizeof(Word);
    for (int i = 0; i < bits; i++) vectors[i] = Word(1) << (bits - 1 - i);
    if (dimension == 0) return;
    const JoeKuo& row = joe_kuo[dimension - 1];
    const int degree = row.degree;
    for (int i = 0; i < degree; i++) vectors[i] = Word(row.first[i]) << (bits - 1 - i);
    for (int i = degree; i < bits; i++) {
        vectors[i] = vectors[i - degree] ^ vectors[i - degree] >> degree;
        for (int k = 1; k < degree; k++)
            if (row.polynomial >> (degree - 1 - k) & 1) vectors[i] ^= vectors[i - k];
    }
}

template <class Word>
Vectors<Word>* direction_vectors() {
    static const auto all = [] {
        auto vectors = std::make_unique<Vectors<Word>[]>(most_dimensions);
        for (unsigned i = 0; i < most_dimensions; i++) fill_vectors<Word>(vectors[i], i);
        return vectors;
    }();
    return all.get();
}

// The Poisson distribution by inversion: one uniform number makes one of it.
class PoissonTable {
  public:
    explicit PoissonTable(double lambda) {
        const double spread = 12 * sqrt(lambda) + 40;
        first = unsigned(std::max(0.0, floor(lambda - spread)));
        double sum = 0;
        for (double k = first; k <= lambda + spread; k++) {
            int sign;
            sum += exp(k * log(lambda) - lambda - lgamma_r(k + 1, &sign));
            upto.push_back(sum);
        }
    }
    unsigned operator()(double u) const {
        const auto found = std::lower_bound(upto.begin(), upto.end() - 1, u);
        return first + unsigned(found - upto.begin());
    }

  private:
    unsigned first;
    std::vector<double> upto;
};

template <class State>
struct Turns;
template <>
struct Turns<curandStateXORWOW> {
    static constexpr unsigned sequences = 4096, legacy = 4096, each = 1;
};
template <>
struct Turns<curandStateMRG32k3a> {
    static constexpr unsigned sequences = 81920, legacy = 4096, each = 1;
};
template <>
struct Turns<curandStatePhilox4_32_10> {
    static constexpr unsigned sequences = 65536, legacy = 65536, each = 4;
};

}  // namespace
}  // namespace simulator

// The settings of a generator. A change makes it begin anew at its next numbers.
struct curandGenerator_st {
    unsigned long long seed = 0, offset = 0;
    bool legacy = false, is_quasi = false;
    unsigned dimensions = 1;

    virtual ~curandGenerator_st() = default;
    virtual void restart() = 0;

    using Status = curandStatus_t;
    virtual Status words(unsigned* to, size_t count) = 0;
    virtual Status long_words(unsigned long long* to, size_t count) = 0;
    virtual Status uniform(float* to, size_t count) = 0;
    virtual Status uniform(double* to, size_t count) = 0;
    virtual Status normal(float* to, size_t count, float mean, float stddev, bool log) = 0;
    virtual Status normal(double* to, size_t count, double mean, double stddev, bool log) = 0;
    virtual Status poisson(unsigned* to, size_t count, double lambda) = 0;
};

namespace simulator {
namespace {

template <class T>
T moved(T z, T mean, T stddev, bool log) {
    return log ? exp(mean + stddev * z) : mean + stddev * z;
}

template <class State>
class PseudoRandom : public curandGenerator_st {
    using Rule = Turns<State>;

  public:
    void restart() override {
        states.clear();
        turn = offset / Rule::each;
        taken = offset % Rule::each;
    }

    Status words(unsigned* to, size_t count) override {
        return fill<Rule::each>(to, count, [](State& state, unsigned* made) {
            for (unsigned i = 0; i < Rule::each; i++) made[i] = curand(&state);
        });
    }
    Status long_words(unsigned long long*, size_t) override { return CURAND_STATUS_TYPE_ERROR; }
    Status uniform(float* to, size_t count) override {
        return fill<Rule::each>(to, count, [](State& state, float* made) {
            for (unsigned i = 0; i < Rule::each; i++) made[i] = curand_uniform(&state);
        });
    }
    Status uniform(double* to, size_t count) override {
        return fill<Rule::each>(to, count, [](State& state, double* made) {
            if constexpr (Rule::each == 4) {
                const double4 four = curand_uniform4_double(&state);
                made[0] = four.x, made[1] = four.y, made[2] = four.z, made[3] = four.w;
            } else {
                made[0] = curand_uniform_double(&state);
            }
        });
    }
    Status normal(float* to, size_t count, float mean, float stddev, bool log) override {
        return fill_pairs(to, count, [=](State& state, float* made) {
            const float2 pair = curand_normal2(&state);
            made[0] = moved(pair.x, mean, stddev, log);
            made[1] = moved(pair.y, mean, stddev, log);
        });
    }
    Status normal(double* to, size_t count, double mean, double stddev, bool log) override {
        return fill_pairs(to, count, [=](State& state, double* made) {
            const double2 pair = curand_normal2_double(&state);
            made[0] = moved(pair.x, mean, stddev, log);
            made[1] = moved(pair.y, mean, stddev, log);
        });
    }
    Status poisson(unsigned* to, size_t count, double lambda) override {
        const PoissonTable table(lambda);
        return fill<Rule::each>(to, count, [&](State& state, unsigned* made) {
            for (unsigned i = 0; i < Rule::each; i++)
                made[i] = table(uniform_double(curand(&state)));
        });
    }

  private:
    // A turn makes `size` numbers. The next call takes those that this one leaves: it makes the
    // turn's once more, perhaps of another kind.
    template <unsigned size, class T, class Make>
    Status fill(T* to, size_t count, Make make) {
        while (count) {
            State& state = state_of(turn);
            State after = state;
            T made[size];
            make(after, made);
            const size_t now = std::min<size_t>(count, size - taken);
            to = std::copy_n(made + taken, now, to);
            count -= now;
            taken += now;
            if (taken == size) {
                state = after;
                turn++;
                taken = 0;
            }
        }
        return CURAND_STATUS_SUCCESS;
    }

    template <class T, class Make>
    Status fill_pairs(T* to, size_t count, Make make) {
        if (count % 2) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
        constexpr unsigned pairs = Rule::each == 4 ? 2 : 1;
        return fill<2 * pairs>(to, count, [=](State& state, T* made) {
            for (unsigned i = 0; i < pairs; i++) make(state, made + 2 * i);
        });
    }

    State& state_of(unsigned long long at) {
        const unsigned sequences = legacy ? Rule::legacy : Rule::sequences;
        const unsigned index = at % sequences;
        while (states.size() <= index) add(states.size(), sequences);
        return states[index];
    }

    void add(unsigned index, unsigned sequences) {
        if (index == 0) {
            curand_init(seed, 0, 0, &unused);
        } else if constexpr (__is_same(State, curandStateMRG32k3a)) {
            skipahead_subsequence(1, &unused);
        } else {
            skipahead_sequence(1, &unused);
        }
        states.push_back(unused);
        const unsigned long long turns = offset / Rule::each;  // before the generator's offset
        skipahead((turns / sequences + (index < turns % sequences)) * Rule::each, &states.back());
    }

    std::vector<State> states;  // of the sequences, as far as they have been needed
    State unused;               // the last of them, as it was at its beginning
    unsigned long long turn = 0;
    size_t taken = 0;  // how many numbers of this turn are gone
};

template <class Word>
class QuasiRandom : public curandGenerator_st {
    using State = Sobol<Word, false>;

  public:
    QuasiRandom() { is_quasi = true; }
    void restart() override { place = offset; }

    Status words(unsigned* to, size_t count) override {
        if (sizeof(Word) > sizeof(*to)) return CURAND_STATUS_TYPE_ERROR;
        return fill(to, count, [](State& state) { return unsigned(curand(&state)); });
    }
    Status long_words(unsigned long long* to, size_t count) override {
        if (sizeof(Word) < sizeof(*to)) return CURAND_STATUS_TYPE_ERROR;
        return fill(to, count, [](State& state) { return curand(&state); });
    }
    Status uniform(float* to, size_t count) override {
        return fill(to, count, [](State& state) { return curand_uniform(&state); });
    }
    Status uniform(double* to, size_t count) override {
        return fill(to, count, [](State& state) { return curand_uniform_double(&state); });
    }
    Status normal(float* to, size_t count, float mean, float stddev, bool log) override {
        return fill(to, count,
                    [=](State& state) { return moved(curand_normal(&state), mean, stddev, log); });
    }
    Status normal(double* to, size_t count, double mean, double stddev, bool log) override {
        return fill(to, count, [=](State& state) {
            return moved(curand_normal_double(&state), mean, stddev, log);
        });
    }
    Status poisson(unsigned* to, size_t count, double lambda) override {
        const PoissonTable table(lambda);
        return fill(to, count, [&](State& state) { return table(curand_uniform_double(&state)); });
    }

  private:
    // All numbers of a dimension stand together.
    template <class T, class Draw>
    Status fill(T* to, size_t count, Draw draw) {
        if (count % dimensions) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
        const size_t points = count / dimensions;
        for (unsigned dimension = 0; dimension < dimensions; dimension++) {
            State state;
            curand_init(direction_vectors<Word>()[dimension], Word(place), &state);
            for (size_t i = 0; i < points; i++) *to++ = draw(state);
        }
        place += points;
        return CURAND_STATUS_SUCCESS;
    }

    unsigned long long place = 0;
};

}  // namespace
}  // namespace simulator
