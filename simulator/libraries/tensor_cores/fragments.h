// Which lane of a warp has which elements of a matrix.
//
// Lanes are in groups of four: `group` has a row of A and of C, and a column of B, and the four
// share its elements, a register of each after the other.
#pragma once
#include "../../include/simulator/tensor_cores.h"
#include "scaled.h"

namespace simulator::tensor_cores {
namespace {

int bits_of(Type type) {
    switch (type) {
        case Type::B1:
            return 1;
        case Type::S4:
        case Type::U4:
        case Type::E2M1:
            return 4;
        case Type::S8:
        case Type::U8:
        case Type::E4M3:
        case Type::E5M2:
        case Type::E2M3:
        case Type::E3M2:
        case Type::ByteE2M1:
            return 8;
        case Type::F16:
        case Type::BF16:
            return 16;
        case Type::F64:
            return 64;
        default:
            return 32;
    }
}

// A dense matrix, and what copies registers into it and back.
struct Dense {
    char* bytes;
    size_t row;  // bytes

    // Register r of a lane of A, C or D: `rows` of 8 rows are side by side.
    char* at(int lane, int r, int rows, int size) const {
        const int group = lane / 4 + 8 * (r % rows), unit = lane % 4 + 4 * (r / rows);
        return bytes + group * row + unit * size;
    }
};

// C and D: a lane has two neighbours, of 16 bits in one register, of more in two.
char* at_result(const Dense& d, int lane, int r, int bits) {
    if (bits == 16) return d.bytes + (lane / 4 + 8 * r) * d.row + lane % 4 * 4;
    const int size = bits / 8;
    return d.bytes + (lane / 4 + 8 * (r / 2)) * d.row + (lane % 4 * 2 + r % 2) * size;
}

// m8n8k4: each of four groups of 8 lanes, those of two quads, has a tile of its own.
struct QuadPair {
    int lanes[8];
    explicit QuadPair(int pair) {
        for (int i = 0; i < 8; i++) lanes[i] = pair * 4 + i % 4 + i / 4 * 16;
    }
};

void multiply_quad_pairs(Meeting* const* lanes, const Tile& tile) {
    for (int pair = 0; pair < 4; pair++) {
        const QuadPair of(pair);
        uint16_t a[8][4], b[8][4];
        alignas(4) char d[8 * 8 * 4];
        const auto mine = [&](int i) { return static_cast<Fragments*>(lanes[of.lanes[i]]); };
        // By rows: lane i has row i. By columns: it has column i % 4, of the rows of its quad.
        const auto take = [&](uint16_t (&to)[8][4], bool by_lines, int i, const void* words) {
            const auto elements = static_cast<const uint16_t*>(words);
            for (int e = 0; e < 4; e++) {
                if (by_lines)
                    to[i][e] = elements[e];
                else
                    to[e + i / 4 * 4][i % 4] = elements[e];
            }
        };
        const auto place = [&](int i, int e) {
            if (tile.d == Type::F16) return i * 8 + e;
            const int row = (i & 1) + (e & 2) + i / 4 * 4, column = (e & 4) + (i & 2) + (e & 1);
            return row * 8 + column;
        };
        const int size = tile.d == Type::F16 ? 2 : 4;
        for (int i = 0; i < 8; i++) {
            take(a, !tile.a_is_column, i, mine(i)->a);
            take(b, !tile.b_is_row, i, mine(i)->b);
            for (int e = 0; e < 8; e++)
                memcpy(d + place(i, e) * size, static_cast<char*>(mine(i)->d) + e * size, size);
        }
        multiply(tile, a, b, d);
        for (int i = 0; i < 8; i++)
            for (int e = 0; e < 8; e++)
                memcpy(static_cast<char*>(mine(i)->d) + e * size, d + place(i, e) * size, size);
    }
}

// The matrices of a warp, put together from its lanes' registers.
struct WarpMatrices {
    alignas(64) char bytes_of_a[16 * 128], bytes_of_b[8 * 128], bytes_of_d[16 * 8 * 8];
    int size, of_d, rows, results, size_of_d;
    Dense a, b, d;

    // k_of_b: where A is sparse, twice its own.
    WarpMatrices(Meeting* const* lanes, const Tile& tile, int k_of_b)
        : size(bits_of(tile.a) == 64 ? 8 : 4),
          of_d(bits_of(tile.d)),
          rows(tile.m / 8),
          results(of_d == 16 ? rows : 2 * rows),
          size_of_d(of_d == 64 ? 8 : 4),
          a{bytes_of_a, size_t(tile.k) * bits_of(tile.a) / 8},
          b{bytes_of_b, size_t(k_of_b) * bits_of(tile.b) / 8},
          d{bytes_of_d, size_t(tile.n) * of_d / 8} {
        const int units_of_a = int(a.row) / (4 * size), units_of_b = int(b.row) / (4 * size);
        for (int lane = 0; lane < 32; lane++) {
            const auto& mine = *static_cast<Fragments*>(lanes[lane]);
            const auto *of_a = static_cast<const char*>(mine.a),
                       *of_b = static_cast<const char*>(mine.b);
            for (int r = 0; r < rows * units_of_a; r++)
                memcpy(a.at(lane, r, rows, size), of_a + r * size, size);
            for (int r = 0; r < units_of_b; r++)
                memcpy(b.at(lane, r, 1, size), of_b + r * size, size);
            for (int r = 0; r < results; r++)
                memcpy(at_result(d, lane, r, of_d),
                       static_cast<const char*>(mine.d) + r * size_of_d, size_of_d);
        }
    }

    void give_back(Meeting* const* lanes) const {
        for (int lane = 0; lane < 32; lane++) {
            auto* result = static_cast<char*>(static_cast<Fragments*>(lanes[lane])->d);
            for (int r = 0; r < results; r++)
                memcpy(result + r * size_of_d, at_result(d, lane, r, of_d), size_of_d);
        }
    }
};

}  // namespace

void multiply_fragments(Meeting* const* lanes, uint32_t which) {
    if (which != ~0u) return;  // undefined: some lanes have returned
    const Tile& tile = *static_cast<Fragments*>(lanes[0])->tile;
    if (tile.a == Type::F16 && tile.k == 4) return multiply_quad_pairs(lanes, tile);
    const WarpMatrices all(lanes, tile, tile.k);
    multiply(tile, all.a.bytes, all.b.bytes, all.d.bytes);
    all.give_back(lanes);
}

}  // namespace simulator::tensor_cores
