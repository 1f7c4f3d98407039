// Tiles in shared memory whose rows have 128 bytes, in the 128-byte swizzle of TMA: the 16 bytes
// that are number i of row r stand at number i ^ (r % 8) of that row. So neither the pieces of a
// row nor those of one column in eight rows meet in a bank.
#pragma once

#include <stdint.h>

constexpr int kTileRow = 128;     // bytes
constexpr int kTileAlign = 1024;  // eight rows: what a tile begins on a multiple of

// The offset of byte `column` of row `row` in a tile.
__host__ __device__ constexpr int swizzled(int row, int column) {
    return row * kTileRow + (column ^ row % 8 * 16);
}

__device__ inline uint32_t shared_address(const void* p) {
    return uint32_t(__cvta_generic_to_shared(p));
}

// Two floats as a pair of 16-bit ones, the first in the lower half.
template <class T>
__device__ uint32_t rounded_pair(float first, float second) {
    T pair[2] = {T(first), T(second)};
    uint32_t word;
    memcpy(&word, pair, sizeof(word));
    return word;
}

// What a block has in dynamic shared memory, in which a tile may begin: give it kTileAlign more.
template <class S>
__device__ S& tile_aligned(char* memory) {
    return *reinterpret_cast<S*>(
        memory + (kTileAlign - shared_address(memory) % kTileAlign) % kTileAlign);
}
