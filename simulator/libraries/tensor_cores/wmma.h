// mma_sync of nvcuda::wmma: the lanes' fragments are put together, multiplied and given back.
#pragma once
#include "../../include/simulator/wmma.h"
#include "fragments.h"

namespace simulator::tensor_cores {
namespace {

WarpFragments& warp_fragments(Meeting* const* lanes, int lane) {
    return *static_cast<WarpFragments*>(lanes[lane]);
}

void gather_units(Meeting* const* lanes, const Factor& matrix, bool is_a, int size, char* to) {
    const size_t row = size_t(matrix.units) * size;
    for (int i = 0; i < matrix.units_of_lane(); i++) {
        for (int lane = 0; lane < 32; lane++) {
            const auto& mine = warp_fragments(lanes, lane);
            const auto* from = static_cast<const char*>(is_a ? mine.a : mine.b);
            const auto at = matrix.place(lane, i);
            memcpy(to + at.line * row + at.unit * size, from + i * size, size);
        }
    }
}

template <class Visit>
void for_each_result(const Tile& tile, Visit visit) {
    for (int i = 0; i < tile.m * tile.n / 32; i++) {
        for (int lane = 0; lane < 32; lane++) {
            const auto at = element(tile.m, tile.n, lane, i);
            visit(lane, i, size_t(at.row) * tile.n + at.column);
        }
    }
}

// Of tf32 four products are summed at once, as was measured on an H100 too.
void multiply_halves(const Tile& tile, const char* a, const char* b, char* d) {
    Tile half = tile;
    half.k = tile.k / 2;
    const size_t bytes = half.k * sizeof(float);
    alignas(64) char half_of_a[16 * 16], half_of_b[16 * 16];
    for (int i = 0; i < 2; i++) {
        for (int line = 0; line < 16; line++) {
            memcpy(half_of_a + line * bytes, a + (2 * line + i) * bytes, bytes);
            memcpy(half_of_b + line * bytes, b + (2 * line + i) * bytes, bytes);
        }
        multiply(half, half_of_a, half_of_b, d);
    }
}

}  // namespace

void multiply_warp_fragments(Meeting* const* lanes, uint32_t which) {
    const auto& first = warp_fragments(lanes, __builtin_ctz(which));
    if (which != ~0u)
        fail("all 32 lanes of a warp take part, and none has returned", "mma_sync", first.file,
             first.line);
    const Tile& tile = *first.tile;
    const int bits = bits_of(tile.a), size = bits == 64 ? 8 : 4;
    const int units = tile.k * bits / 8 / size, size_of_d = bits_of(tile.d) / 8;
    alignas(64) char a[32 * 32], b[32 * 32], d[16 * 16 * 4];
    gather_units(lanes, factor(true, tile.m, units), true, size, a);
    gather_units(lanes, factor(false, tile.n, units), false, size, b);
    for_each_result(tile, [&](int lane, int i, size_t at) {
        const auto* c = static_cast<const char*>(warp_fragments(lanes, lane).d);
        memcpy(d + at * size_of_d, c + i * size_of_d, size_of_d);
    });
    tile.a == Type::TF32 ? multiply_halves(tile, a, b, d) : multiply(tile, a, b, d);
    for_each_result(tile, [&](int lane, int i, size_t at) {
        auto* result = static_cast<char*>(warp_fragments(lanes, lane).d);
        memcpy(result + i * size_of_d, d + at * size_of_d, size_of_d);
    });
}

void come_to_load(Meeting* const*, uint32_t) {}
void come_to_store(Meeting* const*, uint32_t) {}

}  // namespace simulator::tensor_cores
