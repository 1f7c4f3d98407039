// Products whose rows of A and columns of B have scales for blocks along k.
//
// Which bits are kept is as Xie and others found on a B200 and on compute capability 12.0
// ("MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", 2025), not measured
// here. With 32 numbers along k, one scale counts for all: the sum is that of other products with
// 25 bits. With 64 numbers of 4 bits, 16 products each are added up exactly, then scaled, and the
// four sums and C are added with 35 bits behind the largest exponent's. The exponent of such a sum
// is that of its scales. With 96 numbers there are six sums (assumed: the model has none of them).
#pragma once
#include "../../include/simulator/tensor_cores.h"

namespace simulator::tensor_cores {
namespace {

constexpr int fp4_group = 16, most_fp4_groups = 6;

// A scale: magnitude / 8 * 2^exponent.
struct Scale {
    int magnitude, exponent;
    bool is_nan;
};

Scale scale_of(uint32_t byte, bool is_ue4m3) {
    if (!is_ue4m3) return {8, int(byte) - 127, byte == 0xff};
    const int size = byte & 0x7f, exponent = size >> 3;
    return {(size & 7) | (exponent ? 8 : 0), std::max(exponent, 1) - 7, size == 0x7f};
}

// Those of all lines, by groups.
std::vector<Scale> scales_of(const BlockScales& scales, const uint64_t* words, int lines,
                             int groups) {
    std::vector<Scale> all(size_t(lines) * groups);
    for (int line = 0; line < lines; line++)
        for (int group = 0; group < groups; group++)
            all[line * groups + group] =
                scale_of(words[line] >> group * scales.count / groups * 8 & 0xff, scales.is_ue4m3);
    return all;
}

// Twice the numbers of packed E2M1.
void doubled_fp4(const void* packed, int count, int sign, int8_t* to) {
    static constexpr int8_t doubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    for (int i = 0; i < count; i++) {
        const int word = static_cast<const uint8_t*>(packed)[i / 2] >> i % 2 * 4;
        to[i] = int8_t((word & 8 ? -sign : sign) * doubled[word & 7]);
    }
}

// One element of D, from the groups' sums of products of doubled numbers.
float fp4_result(const int* sums, const bool* are_zero, int groups, const Scale* of_a,
                 const Scale* of_b, uint32_t c_word) {
    constexpr int kept = 35, zero = -139;
    const Parts c = parts_of(c_word, format_of(Type::F32));
    int64_t magnitudes[most_fp4_groups];
    int exponents[most_fp4_groups], top = c.exponent == none ? zero : c.exponent;
    bool is_nan = c.kind == Parts::NaN;
    for (int g = 0; g < groups; g++) {
        is_nan |= of_a[g].is_nan || of_b[g].is_nan;
        const int scale = of_a[g].magnitude * of_b[g].magnitude;
        magnitudes[g] = int64_t(abs(sums[g])) * scale;
        exponents[g] = are_zero[g] || scale == 0 ? zero : of_a[g].exponent + of_b[g].exponent;
        top = std::max(top, exponents[g]);
    }
    if (is_nan) return NAN;
    if (c.kind == Parts::Infinite) return c.sign ? -INFINITY : INFINITY;
    // A product of doubled numbers is 4 times, one of scales 64 times as large.
    constexpr int ahead = kept - 8;
    int64_t total = 0;
    const auto add = [&](int64_t magnitude, int behind, bool is_negative) {
        const int64_t cut = behind > 62 ? 0 : magnitude >> behind;
        total += is_negative ? -cut : cut;
    };
    for (int g = 0; g < groups; g++) add(magnitudes[g] << ahead, top - exponents[g], sums[g] < 0);
    if (c.magnitude) add(int64_t(c.magnitude) << (kept - 23), top - c.exponent, c.sign);
    return float32_of(ldexp(double(total), top - kept), 23) + 0.0f;
}

void multiply_fp4(const Tile& tile, const BlockScales& scales, const uint64_t* rows,
                  const uint64_t* columns, const void* a, const void* b, float* d) {
    const int fp4_k = tile.k, groups = fp4_k / fp4_group;
    thread_local std::vector<int8_t> of_a, of_b;
    of_a.resize(size_t(tile.m) * fp4_k);
    of_b.resize(size_t(tile.n) * fp4_k);
    doubled_fp4(a, tile.m * fp4_k, tile.scale_a, of_a.data());
    doubled_fp4(b, tile.n * fp4_k, tile.scale_b, of_b.data());
    const std::vector<Scale> row_scales = scales_of(scales, rows, tile.m, groups);
    const std::vector<Scale> column_scales = scales_of(scales, columns, tile.n, groups);
    for (int m = 0; m < tile.m; m++) {
        for (int n = 0; n < tile.n; n++) {
            int sums[most_fp4_groups];
            bool are_zero[most_fp4_groups];
            for (int g = 0; g < groups; g++) {
                const int8_t* x = &of_a[m * fp4_k + g * fp4_group];
                const int8_t* y = &of_b[n * fp4_k + g * fp4_group];
                int sum = 0, any = 0;
                for (int i = 0; i < fp4_group; i++) {
                    const int product = x[i] * y[i];
                    sum += product;
                    any |= product;
                }
                sums[g] = sum;
                are_zero[g] = any == 0;
            }
            float& result = d[size_t(m) * tile.n + n];
            uint32_t word;
            memcpy(&word, &result, sizeof word);
            result = fp4_result(
                sums, are_zero, groups, &row_scales[m * groups], &column_scales[n * groups], word);
            constexpr uint32_t nan = 0x7fffffff;
            if (result != result) memcpy(&result, &nan, sizeof nan);
        }
    }
}

// D += A B. `rows` and `columns`: the scales of each, that of the first block in the lowest byte.
void multiply_scaled(const Tile& tile, const BlockScales& scales, const uint64_t* rows,
                     const uint64_t* columns, const void* a, const void* b, void* d) {
    if (tile.a == Type::E2M1)
        return multiply_fp4(tile, scales, rows, columns, a, b, static_cast<float*>(d));
    std::vector<int> powers(size_t(tile.m) + tile.n);
    for (int i = 0; i < tile.m + tile.n; i++) {
        const Scale scale =
            scale_of(uint32_t(i < tile.m ? rows[i] : columns[i - tile.m]) & 0xff, false);
        powers[i] = scale.is_nan ? Scales::nan : scale.exponent;
    }
    const Scales found{powers.data(), powers.data() + tile.m};
    const int products = format_of(tile.a).fraction + format_of(tile.b).fraction;
    int ks[most_k];
    for (int i = 0; i < tile.k; i++) ks[i] = i;
    multiply_floats(tile, a, b, d, ks, tile.k, {25, products, 23, false, 23, -133}, &found);
}

}  // namespace
}  // namespace simulator::tensor_cores
