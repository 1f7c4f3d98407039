// ldmatrix, stmatrix and movmatrix: which lane has which elements of the rows of a matrix.
#pragma once
#include "../../include/simulator/ptx/matrices.h"
#include "packed.h"

namespace simulator::tensor_cores {
namespace {
ptx::MatrixRows& rows_of(Meeting* const* lanes, int lane) {
    return *static_cast<ptx::MatrixRows*>(lanes[lane]);
}

// Register i of a lane, from rows that others have loaded. Bytes, transposed, are four of each of
// two columns: as CUTLASS has them, since the PTX manual shows it in pictures.
uint32_t word_of(Meeting* const* lanes, int lane, int i, const ptx::MatrixRows& all) {
    if (!all.is_transposed) return rows_of(lanes, i * 8 + lane / 4).rows[lane % 4];
    const int bits = all.bits < 16 ? 8 : 16;
    uint32_t word = 0;
    for (int at = 0; at < 32 / bits; at++) {
        const int row =
            bits == 8 ? i / 2 * 16 + lane % 4 * 4 + i % 2 * 2 + at % 2 : i * 8 + lane % 4 * 2 + at;
        const int column = lane / 4 + at / 2 * 8;
        const uint32_t from = rows_of(lanes, row).rows[column * bits / 32];
        word |= (from >> column * bits % 32 & ((1u << bits) - 1)) << at * bits;
    }
    return word;
}
}  // namespace

void distribute_rows(Meeting* const* lanes, uint32_t which) {
    if (which != ~0u) return;
    for (int lane = 0; lane < 32; lane++) {
        auto& mine = rows_of(lanes, lane);
        if (mine.row) memcpy(mine.rows, mine.row, sizeof mine.rows);
        if (mine.bits < 8) unpack(reinterpret_cast<char*>(mine.rows), sizeof mine.rows, mine.bits);
    }
    for (int lane = 0; lane < 32; lane++) {
        auto& mine = rows_of(lanes, lane);
        for (int i = 0; i < mine.count; i++) mine.words[i] = word_of(lanes, lane, i, mine);
    }
}

void collect_rows(Meeting* const* lanes, uint32_t which) {
    if (which != ~0u) return;
    const auto& first = rows_of(lanes, 0);
    for (int row = 0; row < 8 * first.count; row++) {
        auto& to = rows_of(lanes, row);
        for (int word = 0; word < 4; word++) {
            if (!first.is_transposed) {
                to.rows[word] = rows_of(lanes, row % 8 * 4 + word).words[row / 8];
                continue;
            }
            to.rows[word] = 0;
            const int bits = first.bits;
            for (int at = 0; at < 32 / bits; at++) {
                const int column = word * 32 / bits + at;
                const uint32_t from = rows_of(lanes, column % 8 * 4 + row % 8 / 2).words[row / 8];
                const int place = row % 2 + column / 8 * 2;
                to.rows[word] |= (from >> place * bits & ((1u << bits) - 1)) << at * bits;
            }
        }
    }
    for (int row = 0; row < 8 * first.count; row++) {
        auto& to = rows_of(lanes, row);
        if (to.row) memcpy(to.row, to.rows, sizeof to.rows);
    }
}

void transpose(Meeting* const* lanes, uint32_t which) {
    if (which != ~0u) return;
    uint32_t words[32];
    for (int lane = 0; lane < 32; lane++) words[lane] = rows_of(lanes, lane).words[0];
    for (int lane = 0; lane < 32; lane++) {
        uint32_t mine = 0;
        for (int half = 0; half < 2; half++) {
            const int row = lane % 4 * 2 + half, column = lane / 4;
            mine |= (words[row * 4 + column / 2] >> column % 2 * 16 & 0xffff) << 16 * half;
        }
        rows_of(lanes, lane).words[0] = mine;
    }
}

}  // namespace simulator::tensor_cores
