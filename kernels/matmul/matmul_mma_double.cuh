// The accumulators of the mma version of matmul for double.
#pragma once

#include "matmul_mma.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Each element has one accumulator, as in cuBLAS. (Separate accumulators for each 16 products, as
// for float, would cost a fifth of the speed: the additions need the same units as the tensor
// cores.)
//
// A fragment may have any rows of a tile in any order, if its accumulators are stored accordingly.
// Here its rows n and n + 8 are neighbours in the tile, a pair, and pairs are chosen to avoid bank
// conflicts.
template <bool x_by_row, bool w_by_row>
class WarpAccumulators<double, x_by_row, w_by_row> {
    const int row_of_lane = threadIdx.x % kWarp / 4, k_of_lane = threadIdx.x % 4;  // in fragments
    const int down = threadIdx.x / kWarp / 2 * 64, right = threadIdx.x / kWarp % 2 * 16;
    double accum[4][4][4] = {};

    // The first row of pair n of a tile's 16 rows.
    template <bool by_row>
    __device__ static int pair(int n) {
        return by_row ? 2 * n : n + n % 2 * 7;
    }

    // Loads this lane's elements of 16 rows and 8 of k: two pairs.
    template <bool by_row>
    __device__ void load_pairs(double (&to)[4], const char* tile, int first, int first_k) const {
        const auto at = [&](int line, int i) {
            const int byte = swizzled(line, i * int(sizeof(double)));
            return reinterpret_cast<const double*>(tile + first * kTileRow + byte);
        };
        const int row = pair<by_row>(row_of_lane);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int k = first_k + 4 * i + k_of_lane;
            if constexpr (by_row) {
                to[2 * i] = *at(row, k), to[2 * i + 1] = *at(row + 1, k);
            } else {
                const auto both = load<2>(at(k, row));
                to[2 * i] = both[0], to[2 * i + 1] = both[1];
            }
        }
    }

  public:
    __device__ void add(const char* tile_x, const char* tile_w) {
#pragma unroll
        for (int k = 0; k < MmaTile<double>::kDepth; k += 8) {
            double b[2][4];
            for (int half = 0; half < 2; ++half)
                load_pairs<w_by_row>(b[half], tile_w, right + 32 * half, k);
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                double a[4];
                load_pairs<x_by_row>(a, tile_x, down + 16 * m, k);
#pragma unroll
                for (int n = 0; n < 4; ++n)  // each fragment has one column of a pair
                    mma(accum[m][n], a, {b[n / 2][n % 2], b[n / 2][n % 2 + 2]});
            }
        }
    }
    __device__ void get_chunk(int m, double (&each)[16]) {
        select_chunk(reinterpret_cast<double (&)[4][16]>(accum), m, each);
    }
    __device__ int row(int m, int i) const {
        return down + 16 * m + pair<x_by_row>(row_of_lane) + i / 2 % 2;
    }
    __device__ int column(int i) const {
        return right + i / 8 * 32 + pair<w_by_row>(2 * k_of_lane + i % 2) + i / 4 % 2;
    }
};

#endif
