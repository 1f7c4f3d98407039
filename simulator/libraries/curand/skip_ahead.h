// The powers of the recurrences of XORWOW (Marsaglia, Xorshift RNGs, 2003) and MRG32k3a (L'Ecuyer,
// Good parameters for combined multiple recursive generators, 1999), by which curand_kernel.h's
// generators skip ahead.
#pragma once
#include <array>
#include <memory>
#include "../../include/simulator/skip_ahead.h"

namespace simulator {
namespace {

// A linear map of 160 bits, by what becomes of each bit.
struct XorwowPower {
    using Words = std::array<uint32_t, 5>;
    Words image[160];

    Words operator()(const Words& words) const {
        Words sum = {};
        for (int i = 0; i < 160; i++) {
            const uint32_t chosen = -(words[i / 32] >> i % 32 & 1);
            for (int k = 0; k < 5; k++) sum[k] ^= image[i][k] & chosen;
        }
        return sum;
    }
};

// Of 2^0, 2^1, ... steps.
template <class Power, int count>
using Powers = std::unique_ptr<std::array<Power, count>>;

constexpr int xorwow_powers = 67 + 64;

Powers<XorwowPower, xorwow_powers> powers_of_xorwow() {
    auto powers = std::make_unique<std::array<XorwowPower, xorwow_powers>>();
    for (int i = 0; i < 160; i++) {
        XorwowPower::Words words = {};
        words[i / 32] = 1u << i % 32;
        const uint32_t t = words[0] ^ words[0] >> 2;
        const uint32_t next = words[4] ^ words[4] << 4 ^ t ^ t << 1;
        (*powers)[0].image[i] = {words[1], words[2], words[3], words[4], next};
    }
    for (int k = 1; k < xorwow_powers; k++) {
        const XorwowPower& half = (*powers)[k - 1];
        for (int i = 0; i < 160; i++) (*powers)[k].image[i] = half(half.image[i]);
    }
    return powers;
}

// A 3 by 3 matrix modulo `modulus`.
struct MrgPower {
    uint64_t entry[3][3];

    std::array<uint32_t, 3> operator()(const std::array<uint32_t, 3>& words,
                                       uint64_t modulus) const {
        std::array<uint32_t, 3> result;
        for (int i = 0; i < 3; i++) {
            uint64_t sum = 0;
            for (int j = 0; j < 3; j++) sum += entry[i][j] * words[j] % modulus;
            result[i] = sum % modulus;
        }
        return result;
    }
    MrgPower squared(uint64_t modulus) const {
        MrgPower result;
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) {
                uint64_t sum = 0;
                for (int k = 0; k < 3; k++) sum += entry[i][k] * entry[k][j] % modulus;
                result.entry[i][j] = sum % modulus;
            }
        return result;
    }
};

constexpr int mrg_powers = 127 + 64;
constexpr uint64_t mrg_moduli[2] = {4294967087, 4294944443};

Powers<MrgPower, mrg_powers> powers_of_mrg(const MrgPower& one, uint64_t modulus) {
    auto powers = std::make_unique<std::array<MrgPower, mrg_powers>>();
    (*powers)[0] = one;
    for (int k = 1; k < mrg_powers; k++) (*powers)[k] = (*powers)[k - 1].squared(modulus);
    return powers;
}

void skip_mrg(uint32_t words[3], uint64_t n, unsigned power,
              const std::array<MrgPower, mrg_powers>& powers, uint64_t modulus) {
    std::array<uint32_t, 3> at = {words[0], words[1], words[2]};
    for (; n; n >>= 1, power++)
        if (n & 1) at = powers[power](at, modulus);
    std::copy(at.begin(), at.end(), words);
}

}  // namespace

void skip_xorwow(uint32_t words[5], uint64_t n, unsigned power) {
    static const auto powers = powers_of_xorwow();
    XorwowPower::Words at;
    std::copy(words, words + 5, at.begin());
    for (; n; n >>= 1, power++)
        if (n & 1) at = (*powers)[power](at);
    std::copy(at.begin(), at.end(), words);
}

void skip_mrg32k3a(uint32_t first[3], uint32_t second[3], uint64_t n, unsigned power) {
    constexpr uint64_t m = mrg_moduli[0], l = mrg_moduli[1];
    static const auto firsts = powers_of_mrg({{{0, 1, 0}, {0, 0, 1}, {m - 810728, 1403580, 0}}}, m);
    static const auto seconds =
        powers_of_mrg({{{0, 1, 0}, {0, 0, 1}, {l - 1370589, 0, 527612}}}, l);
    skip_mrg(first, n, power, *firsts, m);
    skip_mrg(second, n, power, *seconds, l);
}

}  // namespace simulator
