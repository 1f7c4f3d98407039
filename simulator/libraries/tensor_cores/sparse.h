// Products of a sparse A. Of four units along k it has two, and two bits of metadata for each say
// which of the four it is: units are 16 bits, or 8 bits of types that have no more.
#pragma once
#include "fragments.h"

namespace simulator::tensor_cores {
namespace {

// The metadata of 16 rows, for their units in order.
struct Metadata {
    uint64_t rows[16] = {};

    // From the words of 32 lanes, by groups of four: of each some lanes, which the selector names,
    // have the group's two rows. Units of 16 bits: a word has eight of each row. Units of 8 bits:
    // it has sixteen of one.
    template <class WordOf>
    Metadata(const Tile& tile, unsigned selector, WordOf word_of) {
        const int bits = bits_of(tile.a), unit = bits >= 16 ? 16 : 8;
        const int words = tile.k * bits / unit / 8;  // of a group
        for (int group = 0; group < 8; group++) {
            for (int i = 0; i < words; i++) {
                const uint64_t word = word_of(group * 4 + int(selector) * words + i);
                if (unit == 16) {
                    rows[group] |= (word & 0xffff) << 16 * i;
                    rows[group + 8] |= (word >> 16) << 16 * i;
                } else {
                    rows[group + i % 2 * 8] |= word << i / 2 * 32;
                }
            }
        }
    }
};

// D += A B: each row of A is multiplied by those units of B's columns that belong to it, by
// `multiply_row(tile of one row, which row, a, b, d)`. metadata: of each row.
template <class MultiplyRow>
void multiply_sparse(const Tile& tile, const char* a, const char* b, char* d,
                     const uint64_t* metadata, MultiplyRow multiply_row) {
    const int bits = bits_of(tile.a), unit = bits >= 16 ? 2 : 1;
    const size_t row = size_t(tile.k) * bits / 8, row_of_d = size_t(tile.n) * bits_of(tile.d) / 8;
    alignas(64) static thread_local char chosen[256 * 32];
    Tile one = tile;
    one.m = 1;
    for (int m = 0; m < tile.m; m++) {
        for (size_t i = 0; i < row / unit; i++) {
            const size_t from = (i / 2 * 4 + (metadata[m] >> 2 * i & 3)) * unit;
            for (int n = 0; n < tile.n; n++)
                memcpy(chosen + n * row + i * unit, b + n * 2 * row + from, unit);
        }
        multiply_row(one, m, a + m * row, chosen, d + m * row_of_d);
    }
}

void multiply_sparse(const Tile& tile, const char* a, const char* b, char* d,
                     const Metadata& metadata) {
    multiply_sparse(tile, a, b, d, metadata.rows,
                    [](const Tile& one, int, const char* x, const char* y, char* to) {
                        multiply(one, x, y, to);
                    });
}

}  // namespace

void multiply_sparse_fragments(Meeting* const* lanes, uint32_t which) {
    if (which != ~0u) return;
    const auto mine = [&](int lane) { return static_cast<SparseFragments*>(lanes[lane]); };
    const Tile& tile = *mine(0)->tile;
    const WarpMatrices all(lanes, tile, 2 * tile.k);
    const Metadata metadata(
        tile, mine(0)->selector, [&](int lane) { return mine(lane)->metadata; });
    multiply_sparse(tile, all.a.bytes, all.b.bytes, all.d.bytes, metadata);
    all.give_back(lanes);
}

// Rows g and g + 8 of A have their scales in lanes 2 i and 2 i + 1 of group g, column g of B in
// one.
void multiply_scaled_fragments(Meeting* const* lanes, uint32_t which) {
    if (which != ~0u) return;
    const auto mine = [&](int lane) { return static_cast<ScaledFragments*>(lanes[lane]); };
    const ScaledFragments& first = *mine(0);
    const Tile& tile = *first.tile;
    uint64_t rows[16], columns[8];
    for (int group = 0; group < 8; group++) {
        for (int half = 0; half < 2; half++)
            rows[group + 8 * half] =
                mine(group * 4 + int(first.lane_a) * 2 + half)->scale_a >> 8 * first.byte_a;
        columns[group] = mine(group * 4 + int(first.lane_b))->scale_b >> 8 * first.byte_b;
    }
    const WarpMatrices all(lanes, tile, first.is_sparse ? 2 * tile.k : tile.k);
    const auto multiply_rows =
        [&](const Tile& some, int row, const char* a, const char* b, char* d) {
            multiply_scaled(some, first.scales, rows + row, columns, a, b, d);
        };
    if (first.is_sparse) {
        const Metadata metadata(tile, 0, [&](int lane) { return mine(lane)->metadata; });
        multiply_sparse(tile, all.a.bytes, all.b.bytes, all.d.bytes, metadata.rows, multiply_rows);
    } else {
        multiply_rows(tile, 0, all.a.bytes, all.b.bytes, all.d.bytes);
    }
    all.give_back(lanes);
}

}  // namespace simulator::tensor_cores
