// The sums of the version mma of matmul, where they are of doubles.
#pragma once

#include "matmul_mma.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// There is one sum for each element, as in cuBLAS. (A sum of its own for each 16 products, as
// floats have it, would cost a fifth of the speed: additions take the tensor cores' own unit.)
//
// A fragment may have any rows of a tile, in any order, as long as its sums go where they belong.
// Here its rows n and n + 8 are neighbours in the tile, a pair, and pairs are chosen so that lanes
// which shared memory serves at once never read different words of one bank.
template <bool x_by_row, bool w_by_row>
class WarpSums<double, x_by_row, w_by_row> {
    const int row_of_lane = threadIdx.x % kWarp / 4, k_of_lane = threadIdx.x % 4;  // in fragments
    const int down = threadIdx.x / kWarp / 2 * 64, right = threadIdx.x / kWarp % 2 * 16;
    double sums[4][4][4] = {};

    // The first row of pair n of a tile's 16 rows.
    template <bool by_row>
    __device__ static int pair(int n) {
        return by_row ? 2 * n : n + n % 2 * 7;
    }

    // What this lane has of 16 rows of a tile and 8 of k, from these on: a pair, and then a pair.
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
                for (int n = 0; n < 4; ++n)  // of a pair of columns each fragment has one
                    mma(sums[m][n], a, {b[n / 2][n % 2], b[n / 2][n % 2 + 2]});
            }
        }
    }
    __device__ void take_part(int m, double (&each)[16]) {
        take(reinterpret_cast<double (&)[4][16]>(sums), m, each);
    }
    __device__ int row(int m, int i) const {
        return down + 16 * m + pair<x_by_row>(row_of_lane) + i / 2 % 2;
    }
    __device__ int column(int i) const {
        return right + i / 8 * 32 + pair<w_by_row>(2 * k_of_lane + i % 2) + i / 4 % 2;
    }
};

#endif
