// Block scales: a byte for each 32 or 16 neighbours of a row, in the layout that tensor memory and
// cuBLAS take (PyTorch's SWIZZLE_32_4_4). For bindings and kernels.
#pragma once

#include <cuda_runtime.h>

#include "types.h"

// The scales of 128 rows and 4 blocks form a tile of 512 bytes. Tiles of the same rows follow each
// other. What a tile has beyond the last row and block is 0.
constexpr int kScaleRows = 128, kScaleColumns = 4, kScaleTile = kScaleRows * kScaleColumns;

// Where the scale of a row and a block lies in its tile.
inline __host__ __device__ int offset_in_tile(int row, int block) {
    return row % 32 * 16 + row / 32 * 4 + block;
}

// What is scaled: rows x blocks.
struct BlockScales {
    int64_t rows, blocks;

    __host__ __device__ int64_t tiles_across() const {
        return (blocks + kScaleColumns - 1) / kScaleColumns;
    }
    __host__ __device__ int64_t tiles() const {
        return (rows + kScaleRows - 1) / kScaleRows * tiles_across();
    }
    __host__ __device__ int64_t bytes() const { return tiles() * kScaleTile; }
    __host__ __device__ int64_t offset(int64_t row, int64_t block) const {
        const int64_t tile = row / kScaleRows * tiles_across() + block / kScaleColumns;
        return tile * kScaleTile + offset_in_tile(row % kScaleRows, block % kScaleColumns);
    }
};
