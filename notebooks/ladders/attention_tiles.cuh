// Tiles and warp-level products for the mma.sync rungs of attention: 64 rows of bfloat16 in shared
// memory, in boxes of 64 columns in the 128-byte swizzle, and products of 16 rows of a warp.
#pragma once

#include "attention_rows.cuh"

constexpr int kTile = 64, kThreads = 128;  // rows of a tile; threads of a block, which share it

template <int kCols>
struct alignas(kTileAlign) Tile {
    char boxes[kCols / 64][kTile * kTileRow];
    __device__ char* at(int row, int column) {
        return boxes[column / 64] + swizzled(row, column % 64 * 2);
    }

    // Starts copies of 64 rows from global memory, 16 bytes each.
    __device__ void load(const T* from) {
        for (int i = threadIdx.x; i < kTile * kCols / 8; i += kThreads) {
            const int row = i / (kCols / 8), column = i % (kCols / 8) * 8;
            cp_async_or_zeros(at(row, column), from + row * kCols + column, 8);
        }
    }
};

// s [16, 64] = a b^T, for rows `row` to `row` + 15 of a and all 64 of b.
template <int kCols>
__device__ void multiply_rows(float (&s)[32], Tile<kCols>& a, int row, Tile<kCols>& b) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (float& each : s) each = 0;
#pragma unroll
    for (int k = 0; k < kCols; k += 16) {
        uint32_t left[4], right[4];
        ldmatrix(left, a.at(row + lane % 16, k + lane / 16 * 8), false);
#pragma unroll
        for (int n = 0; n < kTile; n += 16) {
            ldmatrix(right, b.at(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8), false);
            mma<T>(reinterpret_cast<float (&)[4]>(s[n / 2]), left, right);
            mma<T>(reinterpret_cast<float (&)[4]>(s[n / 2 + 4]), left, right + 2);
        }
    }
}

// accum [16, columns] += p b, for 64 columns of p, which are rows of b.
template <int kCols>
__device__ void multiply_columns(float (&accum)[kCols / 2], uint32_t (&p)[16], Tile<kCols>& b) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int k = 0; k < kTile; k += 16) {
        const auto& left = reinterpret_cast<uint32_t (&)[4]>(p[k / 4]);
#pragma unroll
        for (int n = 0; n < kCols; n += 16) {
            uint32_t right[4];
            ldmatrix(right, b.at(k + lane % 16, n + lane / 16 * 8), true);
            mma<T>(reinterpret_cast<float (&)[4]>(accum[n / 2]), left, right);
            mma<T>(reinterpret_cast<float (&)[4]>(accum[n / 2 + 4]), left, right + 2);
        }
    }
}
