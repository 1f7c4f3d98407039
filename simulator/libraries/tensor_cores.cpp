// Tensor cores on a CPU. Compiled once, like the simulator's runtime, and opened when a kernel
// includes simulator/tensor_cores.h.
//
// How they round was measured on an H100, and is what Fasi, Higham, Mikaitis and Pranesh (2021,
// "Numerical behavior of NVIDIA tensor cores") found on earlier ones, with other widths. The
// products of a tile's row and column are exact. They and C are aligned to the largest exponent
// among them, where bits further behind than so many are cut off, and summed without rounding. A
// float32 result is cut off, a float16 result is rounded to nearest. Which exponents count is
// decided before the multiplication: that of a product is the sum of the factors'.
#include "../include/simulator/tensor_cores.h"
#include <limits.h>
#include <math.h>
#include <string.h>
#include <algorithm>
#include <vector>
#ifndef __clang__
#pragma GCC optimize("O3")
#endif

#include "tensor_cores/numbers.h"

namespace simulator::tensor_cores {
namespace {

// D += A B where a factor or C is infinite or no number: one result after another.
void multiply_specials(const Tile& tile, const void* a, const void* b, void* d, const int* ks,
                       int count, const Rounding& rounding, const Scales* scales = nullptr) {
    const Format of_a = format_of(tile.a), of_b = format_of(tile.b);
    const Format of_d = format_of(tile.d);
    for (int m = 0; m < tile.m; m++) {
        for (int n = 0; n < tile.n; n++) {
            Parts x[most_k], y[most_k];
            Special special;
            for (int i = 0; i < count; i++) {
                x[i] = parts_of(word_at(a, m * tile.k + ks[i], of_a.bits), of_a);
                y[i] = parts_of(word_at(b, n * tile.k + ks[i], of_b.bits), of_b);
                if (tile.scale_a < 0) x[i].sign = ~x[i].sign;
                if (tile.scale_b < 0) y[i].sign = ~y[i].sign;
                special.add(x[i], y[i]);
            }
            const size_t at = size_t(m) * tile.n + n;
            Parts c = parts_of(word_at(d, at, of_d.bits), of_d);
            special.add(c);
            // All products have the same scale, so it is C that is moved, and the sum back.
            const int scale = scales ? scales->of(m, n) : 0, zero = rounding.zero - scale;
            if (scales && (scales->rows[m] == Scales::nan || scales->columns[n] == Scales::nan))
                special.nan = true;
            if (c.exponent != none) c.exponent -= scale;
            int32_t of_x[3][most_k], of_y[3][most_k];
            for (int i = 0; i < count; i++) {
                of_x[0][i] = x[i].magnitude, of_x[1][i] = x[i].exponent, of_x[2][i] = x[i].sign;
                of_y[0][i] = y[i].magnitude, of_y[1][i] = y[i].exponent, of_y[2][i] = y[i].sign;
            }
            double total;
            sum_columns<1>(count, of_x[0], of_x[1], of_x[2], of_y[0], of_y[1], of_y[2],
                           &c.magnitude, &c.exponent, &c.sign, &zero, rounding, &total);
            total *= power_of_two(scale);
            if (rounding.is_half)
                static_cast<uint16_t*>(d)[at] =
                    special.is_nan() ? 0x7fff
                    : special.plus   ? 0x7c00
                    : special.minus  ? 0xfc00
                                     : float16_of(total);
            else if (special.any())
                static_cast<uint32_t*>(d)[at] =
                    special.is_nan() ? 0x7fffffff
                    : special.plus   ? 0x7f800000
                                     : 0xff800000;
            else
                static_cast<float*>(d)[at] =
                    unsigned_zero(float32_of(total, rounding.result), rounding);
        }
    }
}

// The words of a matrix's rows at the k of a list, `wide` rows side by side for each k. Rows that
// are not there are zeros.
template <int wide, class Word>
void set_side_by_side(const Word* words, int k, int rows, const int* ks, int count, Word* to) {
    for (int i = 0; i < count; i++)
        for (int n = 0; n < wide; n++) to[i * wide + n] = n < rows ? words[n * k + ks[i]] : Word(0);
}

template <int wide, class Word>
bool multiply_numbers(const Tile& tile, const Word* a, const Word* b, void* d, const int* ks,
                      int count, const Rounding& rounding, const Scales* scales) {
    const Format of_a = format_of(tile.a), of_b = format_of(tile.b), of_d = format_of(tile.d);
    alignas(64) Word words[64 * most_k];
    Apart<64 * most_k> rows;
    for (int m = 0; m < tile.m; m++)
        for (int i = 0; i < count; i++) words[m * count + i] = a[m * tile.k + ks[i]];
    if (!rows.take(words, tile.m * count, of_a)) return false;
    const bool negates = (tile.scale_a < 0) != (tile.scale_b < 0);
    if (negates)
        for (int i = 0; i < tile.m * count; i++) rows.sign[i] = ~rows.sign[i];
    Apart<wide * most_k> columns;
    Apart<wide> c;
    for (int first = 0; first < tile.n; first += wide) {
        const int width = std::min<int>(wide, tile.n - first);
        set_side_by_side<wide>(b + size_t(first) * tile.k, tile.k, width, ks, count, words);
        if (!columns.take(words, wide * count, of_b)) return false;
        for (int m = 0; m < tile.m; m++) {
            const size_t at = size_t(m) * tile.n + first;
            alignas(64) uint32_t before[wide] = {};
            memcpy(before, static_cast<char*>(d) + at * of_d.bits / 8, width * of_d.bits / 8);
            if (!c.take(static_cast<const void*>(before), wide, of_d)) return false;
            alignas(64) Columns<wide> scale = {}, zeros;
            for (int n = 0; scales && n < width; n++) {
                scale[n] = scales->of(m, first + n);
                if (scale[n] > Scales::nan / 2) return false;
                if (c.exponent[n] != none) c.exponent[n] -= scale[n];
            }
            for (int n = 0; n < wide; n++) zeros[n] = rounding.zero - scale[n];
            alignas(64) double totals[wide];
            const int i = m * count;
            sum_columns<wide>(count, rows.magnitude + i, rows.exponent + i, rows.sign + i,
                              columns.magnitude, columns.exponent, columns.sign, c.magnitude,
                              c.exponent, c.sign, zeros, rounding, totals);
            for (int n = 0; scales && n < width; n++) totals[n] *= power_of_two(scale[n]);
            if (rounding.is_half) {
                for (int n = 0; n < width; n++)
                    static_cast<uint16_t*>(d)[at + n] = float16_of(totals[n]);
                continue;
            }
            alignas(64) float results[wide];
            float32s_of(totals, wide, rounding.result, results);
            for (float& result : results) result = unsigned_zero(result, rounding);
            memcpy(static_cast<float*>(d) + at, results, width * sizeof(float));
        }
    }
    return true;
}

// D += A B of so many rows, columns and k, for the k of a list.
void multiply_floats(const Tile& tile, const void* a, const void* b, void* d, const int* ks,
                     int count, const Rounding& rounding, const Scales* scales = nullptr) {
    // What has been written of D by the time that something special is found is computed again.
    thread_local std::vector<char> before;
    const size_t bytes = size_t(tile.m) * tile.n * (rounding.is_half ? 2 : 4);
    const bool is_narrow = tile.n <= 8;
    const auto in_words = [&](auto word) {
        using Word = decltype(word);
        const auto x = static_cast<const Word*>(a), y = static_cast<const Word*>(b);
        return (is_narrow ? multiply_numbers<8, Word>
                          : multiply_numbers<16, Word>)(tile, x, y, d, ks, count, rounding, scales);
    };
    before.assign(static_cast<char*>(d), static_cast<char*>(d) + bytes);
    const int bits = format_of(tile.a).bits;
    const bool done = bits == 8    ? in_words(uint8_t())
                      : bits == 16 ? in_words(uint16_t())
                                   : in_words(uint32_t());
    if (done) return;
    memcpy(d, before.data(), bytes);
    multiply_specials(tile, a, b, d, ks, count, rounding, scales);
}

float float_of_half(uint16_t word) {
    const Parts parts = parts_of(word, format_of(Type::F16));
    if (parts.kind == Parts::NaN) return NAN;
    const float size =
        parts.kind == Parts::Infinite ? INFINITY : ldexpf(parts.magnitude, parts.exponent - 10);
    return parts.sign ? -size : size;
}

// Numbers of 8 bits as float16, in which those below the least normal one of theirs are normal.
std::vector<uint16_t> halves_of(const void* words, int count, const Format& format) {
    std::vector<uint16_t> halves(count);
    for (int i = 0; i < count; i++) {
        const Parts parts = parts_of(word_at(words, i, 8), format);
        const uint16_t sign = parts.sign ? 0x8000 : 0;
        halves[i] =
            sign | (parts.kind == Parts::NaN ? 0x7fff
                    : parts.kind == Parts::Infinite
                        ? 0x7c00
                        : float16_of(ldexp(parts.magnitude, parts.exponent - format.fraction)));
        if (parts.kind == Parts::Finite && parts.magnitude == 0) halves[i] = sign;
    }
    return halves;
}

void multiply_floats(const Tile& tile, const void* a, const void* b, void* d) {
    const Format of_a = format_of(tile.a), of_b = format_of(tile.b);
    const bool is_half = tile.d == Type::F16;
    Rounding rounding{25, of_a.fraction + of_b.fraction, is_half ? 10 : 23, is_half, 23};
    int ks[most_k];
    const int k = tile.k;
    if (tile.sum != Sum::TwoHalves) {
        if (tile.sum == Sum::Exact13) rounding.kept = rounding.result = 13;
        if (tile.sum == Sum::Blackwell) rounding.zero = is_half ? -21 : -133;
        for (int i = 0; i < k; i++) ks[i] = i;
        return multiply_floats(tile, a, b, d, ks, k, rounding);
    }
    // As float16, in two products that begin with zero. C is added as anywhere.
    Tile halves = tile;
    halves.a = halves.b = Type::F16;
    rounding.products = 20;
    const std::vector<uint16_t> of_a_halves = halves_of(a, tile.m * k, of_a);
    const std::vector<uint16_t> of_b_halves = halves_of(b, tile.n * k, of_b);
    const size_t count = size_t(tile.m) * tile.n;
    std::vector<uint32_t> words(is_half ? (count + 1) / 2 : count);
    for (int part = 0; part < 2; part++) {
        int taken = 0;
        for (int i = 0; i < k; i++)
            if (i % 4 / 2 == part) ks[taken++] = i;
        multiply_floats(
            halves, of_a_halves.data(), of_b_halves.data(), words.data(), ks, taken, rounding);
    }
    for (size_t i = 0; i < count; i++) {
        if (is_half) {
            auto& c = static_cast<uint16_t*>(d)[i];
            const float sum =
                float_of_half(c) + float_of_half(reinterpret_cast<uint16_t*>(words.data())[i]);
            c = sum != sum ? 0x7fff : isinf(sum) ? (sum < 0 ? 0xfc00 : 0x7c00) : float16_of(sum);
        } else {
            auto& c = static_cast<float*>(d)[i];
            float product;
            memcpy(&product, &words[i], sizeof product);
            const float sum = c + product;
            const uint32_t nan = 0x7fffffff;
            memcpy(&c, sum == sum ? static_cast<const void*>(&sum) : &nan, sizeof c);
        }
    }
}

void multiply_doubles(const Tile& tile, const double* a, const double* b, double* d) {
    for (int m = 0; m < tile.m; m++) {
        for (int n = 0; n < tile.n; n++) {
            double sum = d[m * tile.n + n];
            for (int k = 0; k < tile.k; k++) sum = fma(a[m * tile.k + k], b[n * tile.k + k], sum);
            d[m * tile.n + n] = sum;
        }
    }
}

int integer_at(const void* words, size_t i, Type type) {
    const auto bytes = static_cast<const uint8_t*>(words);
    switch (type) {
        case Type::S8:
            return int8_t(bytes[i]);
        case Type::U8:
            return bytes[i];
        case Type::U4:
            return bytes[i / 2] >> i % 2 * 4 & 15;
        default:
            return int8_t(bytes[i / 2] >> i % 2 * 4 << 4) >> 4;
    }
}

void multiply_integers(const Tile& tile, const void* a, const void* b, int32_t* d) {
    thread_local std::vector<int> rows, columns;
    const auto take_apart = [&](std::vector<int>& to, const void* from, int count, Type type) {
        to.resize(size_t(count) * tile.k);
        for (size_t i = 0; i < to.size(); i++) to[i] = integer_at(from, i, type);
    };
    take_apart(rows, a, tile.m, tile.a);
    take_apart(columns, b, tile.n, tile.b);
    for (int m = 0; m < tile.m; m++) {
        for (int n = 0; n < tile.n; n++) {
            int64_t sum = d[m * tile.n + n];
            int products = 0;  // at most 256 of 16 bits
            for (int k = 0; k < tile.k; k++)
                products += rows[m * tile.k + k] * columns[n * tile.k + k];
            sum += products;
            if (tile.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
            d[m * tile.n + n] = int32_t(sum);
        }
    }
}

void multiply_bits(const Tile& tile, const uint32_t* a, const uint32_t* b, int32_t* d) {
    const int words = tile.k / 32;
    for (int m = 0; m < tile.m; m++) {
        for (int n = 0; n < tile.n; n++) {
            for (int i = 0; i < words; i++) {
                const uint32_t x = a[m * words + i], y = b[n * words + i];
                d[m * tile.n + n] += __builtin_popcount(tile.is_and ? x & y : x ^ y);
            }
        }
    }
}

}  // namespace

void multiply(const Tile& tile, const void* a, const void* b, void* d) {
    switch (tile.a) {
        case Type::F64:
            return multiply_doubles(tile, static_cast<const double*>(a),
                                    static_cast<const double*>(b), static_cast<double*>(d));
        case Type::S8:
        case Type::U8:
        case Type::S4:
        case Type::U4:
            return multiply_integers(tile, a, b, static_cast<int32_t*>(d));
        case Type::B1:
            return multiply_bits(tile, static_cast<const uint32_t*>(a),
                                 static_cast<const uint32_t*>(b), static_cast<int32_t*>(d));
        default:
            return multiply_floats(tile, a, b, d);
    }
}

}  // namespace simulator::tensor_cores

#include "tensor_cores/fragments.h"
#include "tensor_cores/matrix_rows.h"
#include "tensor_cores/tensor_uses.h"
#include "tensor_cores/warpgroups.h"
#include "tensor_cores/wmma.h"
