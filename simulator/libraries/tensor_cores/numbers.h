// Numbers as tensor cores see them: formats, their parts, exact sums and how these are rounded.
#pragma once
#include <limits.h>
#include <math.h>
#include <string.h>
#include <algorithm>
#include <vector>
#include "../../include/simulator/tensor_cores.h"

namespace simulator::tensor_cores {
namespace {

// The binary format of a type: 1 sign, so many bits of exponent and of fraction.
struct Format {
    int exponent, fraction, bits, dropped = 0;  // dropped: low bits of its word that do not count
    bool has_infinity = true, has_nan = true;
    int bias() const { return (1 << (exponent - 1)) - 1; }
};

Format format_of(Type type) {
    switch (type) {
        case Type::F16:
            return {5, 10, 16};
        case Type::BF16:
            return {8, 7, 16};
        case Type::TF32:
            return {8, 10, 32, 13};
        case Type::E4M3:
            return {4, 3, 8, 0, false};
        case Type::E5M2:
            return {5, 2, 8};
        case Type::E2M3:
            return {2, 3, 8, 0, false, false};
        case Type::E3M2:
            return {3, 2, 8, 0, false, false};
        case Type::ByteE2M1:
            return {2, 1, 8, 2, false, false};
        default:
            return {8, 23, 32};
    }
}

constexpr int none = -1000;  // the exponent of zero

// A number as an integer times a power of two.
struct Parts {
    int magnitude, exponent, sign;  // value: magnitude * 2^(exponent - fraction); sign: 0 or -1
    enum : uint8_t { Finite, Infinite, NaN } kind;
};

Parts parts_of(uint32_t word, const Format& format) {
    word >>= format.dropped;
    const int most = (1 << format.exponent) - 1;
    const int fraction = word & ((1u << format.fraction) - 1);
    const int exponent = word >> format.fraction & most;
    const int sign = -int(word >> (format.exponent + format.fraction) & 1);
    Parts parts{fraction, std::max(exponent, 1) - format.bias(), sign, Parts::Finite};
    if (exponent) parts.magnitude |= 1 << format.fraction;
    if (exponent == most && format.has_infinity)
        parts.kind = fraction ? Parts::NaN : Parts::Infinite;
    if (exponent == most && format.has_nan && !format.has_infinity &&
        fraction == (1 << format.fraction) - 1)
        parts.kind = Parts::NaN;
    if (parts.magnitude == 0 || parts.kind != Parts::Finite) parts.exponent = none;
    if (parts.kind != Parts::Finite) parts.magnitude = 0;
    return parts;
}

uint32_t word_at(const void* words, size_t i, int bits) {
    switch (bits) {
        case 8:
            return static_cast<const uint8_t*>(words)[i];
        case 16:
            return static_cast<const uint16_t*>(words)[i];
        default:
            return static_cast<const uint32_t*>(words)[i];
    }
}

constexpr int most_k = 32;  // of one sum

// A number of so many columns, which are computed together.
template <int wide>
using Columns = int32_t[wide];

// Numbers taken apart, as Parts: many at once, so none of them may be infinite or no number.
template <int count>
struct Apart {
    alignas(64) int32_t magnitude[count], exponent[count], sign[count];

    // False if one is.
    template <class Word>
    bool take(const Word* words, int some, const Format& format) {
        const int most = (1 << format.exponent) - 1, bias = format.bias();
        const int of_fraction = (1 << format.fraction) - 1, fraction_bits = format.fraction;
        const int sign_at = format.exponent + format.fraction, dropped = format.dropped;
        // The least that is no finite number, without its sign.
        const int limit = format.has_infinity ? most << fraction_bits
                          : format.has_nan    ? most << fraction_bits | of_fraction
                                              : INT_MAX;
        int special = 0;
        for (int i = 0; i < some; i++) {
            const uint32_t word = uint32_t(words[i]) >> dropped;
            const int size = word & ((1u << sign_at) - 1), exponent_bits = size >> fraction_bits;
            const int fraction = size & of_fraction;
            special |= size >= limit;
            magnitude[i] = exponent_bits ? fraction | 1 << fraction_bits : fraction;
            exponent[i] = size ? (exponent_bits ? exponent_bits : 1) - bias : none;
            sign[i] = -int(word >> sign_at & 1);
        }
        return !special;
    }
    bool take(const void* words, int some, const Format& format) {
        switch (format.bits) {
            case 8:
                return take(static_cast<const uint8_t*>(words), some, format);
            case 16:
                return take(static_cast<const uint16_t*>(words), some, format);
            default:
                return take(static_cast<const uint32_t*>(words), some, format);
        }
    }
};

double power_of_two(int exponent) {  // of a normal double
    const int64_t bits = int64_t(exponent + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

// What is the same for all sums of a tile.
struct Rounding {
    int kept;             // bits behind the largest exponent's
    int products;         // bits of fraction that a product has
    int c;                // and C
    bool is_half;         // D is float16
    int result;           // bits of fraction of a float32 result
    int zero = 2 * none;  // the exponent of a zero
};

// Of one row of A with `wide` columns of B: those of a k lie side by side. `zeros`: the exponent of
// a zero in each column.
template <int wide>
void sum_columns(int k, const int32_t* a_magnitude, const int32_t* a_exponent,
                 const int32_t* a_sign, const int32_t* b_magnitude, const int32_t* b_exponent,
                 const int32_t* b_sign, const int32_t* c_magnitude, const int32_t* c_exponent,
                 const int32_t* c_sign, const int32_t* zeros, const Rounding& rounding,
                 double* totals) {
    alignas(64) Columns<wide> top, low = {}, high = {};
    for (int n = 0; n < wide; n++) top[n] = c_exponent[n];
    for (int i = 0; i < k; i++)
        for (int n = 0; n < wide; n++)
            top[n] = std::max(top[n], a_exponent[i] + b_exponent[i * wide + n]);
    int are_small = 0;
    for (int n = 0; n < wide; n++) are_small |= top[n] < zeros[n];
    for (int n = 0; are_small && n < wide; n++) {
        bool has_zero = c_exponent[n] < none / 2;
        for (int i = 0; i < k; i++) has_zero |= a_exponent[i] + b_exponent[i * wide + n] < none / 2;
        if (has_zero) top[n] = std::max(top[n], zeros[n]);
    }
    // A sum of eight products and C has less than 31 bits, so two of them are enough for 16.
    const int shift = rounding.kept - rounding.products, half = (k + 1) / 2;
    const auto add = [&](int i, Columns<wide>& to) {
        const int magnitude = a_magnitude[i], exponent = a_exponent[i], sign = a_sign[i];
        for (int n = 0; n < wide; n++) {
            const uint32_t product = uint32_t(magnitude * b_magnitude[i * wide + n]) << shift;
            const int behind = std::min(top[n] - (exponent + b_exponent[i * wide + n]), 31);
            const int negative = sign ^ b_sign[i * wide + n];
            to[n] += (int32_t(product >> behind) ^ negative) - negative;
        }
    };
    for (int i = 0; i < half; i++) add(i, low);
    for (int i = half; i < k; i++) add(i, high);
    const int up = std::max(rounding.kept - rounding.c, 0);
    const int down = std::max(rounding.c - rounding.kept, 0);
    for (int n = 0; n < wide; n++) {
        const uint32_t magnitude = uint32_t(c_magnitude[n]) << up >> down;
        const int behind = std::min(top[n] - c_exponent[n], 31);
        low[n] += (int32_t(magnitude >> behind) ^ c_sign[n]) - c_sign[n];
    }
    for (int n = 0; n < wide; n++) {
        totals[n] = (double(low[n]) + double(high[n])) *
                    power_of_two(std::max(top[n], -500) - rounding.kept);
    }
}

// Cut off to so many bits of fraction, and to multiples of the smallest subnormal number.
float float32_of(double exact, int fraction) {
    if (fabs(exact) < 0x1p-126) return float(trunc(exact * 0x1p149) * 0x1p-149);
    int64_t bits;
    memcpy(&bits, &exact, sizeof bits);
    bits &= -(1ll << (52 - fraction));
    memcpy(&exact, &bits, sizeof exact);
    return float(exact);  // what is too large is infinite
}

void float32s_of(const double* exact, int count, int fraction, float* to) {
    const int64_t kept = -(1ll << (52 - fraction));
    int small = 0;
    for (int n = 0; n < count; n++) {
        int64_t bits;
        memcpy(&bits, &exact[n], sizeof bits);
        small |= fabs(exact[n]) < 0x1p-126 && exact[n] != 0;
        bits &= kept;
        double cut;
        memcpy(&cut, &bits, sizeof cut);
        to[n] = float(cut);
    }
    if (small)
        for (int n = 0; n < count; n++) to[n] = float32_of(exact[n], fraction);
}

// Blackwell has no negative zero among its results.
float unsigned_zero(float result, const Rounding& rounding) {
    return rounding.zero > none ? result + 0.0f : result;
}

uint16_t float16_of(double exact) {
    int64_t bits;
    memcpy(&bits, &exact, sizeof bits);
    const int exponent = std::max(int(bits >> 52 & 0x7ff) - 1023, -14);
    const double unit = ldexp(1.0, exponent - 10);
    const double rounded = nearbyint(exact / unit) * unit;
    if (rounded == 0) return 0;
    const uint16_t sign = rounded < 0 ? 0x8000 : 0;
    const double size = fabs(rounded);
    if (size > 65504) return sign | 0x7c00;
    int power;
    const double part = frexp(size, &power);  // part in [0.5, 1)
    if (power - 1 < -14) return sign | uint16_t(size * 0x1p24);
    return sign | uint16_t((power - 1 + 15) << 10) | (uint16_t(part * 2048) & 0x3ff);
}

// The sum where a factor or C is no finite number: NaN, infinity, or nothing special (0).
struct Special {
    bool nan = false, plus = false, minus = false;

    void add(const Parts& a, const Parts& b) {
        const bool negative = a.sign != b.sign;
        if (a.kind == Parts::NaN || b.kind == Parts::NaN) {
            nan = true;
        } else if (a.kind == Parts::Infinite || b.kind == Parts::Infinite) {
            const bool is_zero = (a.kind == Parts::Finite && a.magnitude == 0) ||
                                 (b.kind == Parts::Finite && b.magnitude == 0);
            (is_zero ? nan : negative ? minus : plus) = true;
        }
    }
    void add(const Parts& c) {
        if (c.kind == Parts::NaN) nan = true;
        if (c.kind == Parts::Infinite) (c.sign ? minus : plus) = true;
    }
    bool any() const { return nan || plus || minus; }
    bool is_nan() const { return nan || (plus && minus); }
};

// Powers of two by which rows of A and columns of B count.
struct Scales {
    const int *rows, *columns;
    static constexpr int nan = 1000;
    int of(int row, int column) const { return rows[row] + columns[column]; }
};

}  // namespace
}  // namespace simulator::tensor_cores
