// The sums of the version mma of matmul, where they are of doubles.
#pragma once

#include "matmul_mma.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Tensor cores round a sum of doubles with each product that they add to it. So they add up those
// of a group of tiles, and groups are added up in memory, for sums of both kinds have no room in
// registers. (A shorter group, of one instruction, would need an addition for each 16 products,
// which the tensor cores' own unit carries out: a fifth of the speed.)
//
// Rows n and n + 8 of a fragment are neighbours in the tile. Which those are is the lanes'
// business: here they are such that no two lanes that are served at once meet in a bank.
template <bool x_by_row, bool w_by_row>
class WarpSums<double, x_by_row, w_by_row> {
    const int n = threadIdx.x % kWarp / 4, k = threadIdx.x % 4;  // of this lane in fragments
    const int down = threadIdx.x / kWarp / 2 * 64, right = threadIdx.x / kWarp % 2 * 16;
    double sums[4][4][4] = {};
    double* const totals;  // this thread's first; the others are kApart further each

    static constexpr int kCount = 64, kApart = MmaTile<double>::kThreads;

    // The first of two neighbours among 16 rows of a tile.
    template <bool by_row>
    __device__ static int pair(int n) {
        return by_row ? 2 * n : n + n % 2 * 7;
    }

    // What this lane has of 16 rows of a tile, from `first` on, and of 8 of k: of each k both
    // neighbours.
    template <bool by_row>
    __device__ void load_rows(double (&to)[4], const char* tile, int first, int first_k) const {
        const char* const lines = tile + first * kTileRow;
        const int row = pair<by_row>(n);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int at_k = first_k + 4 * i + k;
            if constexpr (by_row) {
                for (int j = 0; j < 2; ++j) to[2 * i + j] = *at(lines, row + j, at_k);
            } else {
                const auto two = load<2>(at(lines, at_k, row));
                to[2 * i] = two[0], to[2 * i + 1] = two[1];
            }
        }
    }
    __device__ static const double* at(const char* lines, int line, int i) {
        return reinterpret_cast<const double*>(lines + swizzled(line, i * int(sizeof(double))));
    }

  public:
    __device__ explicit WarpSums(char* totals)
        : totals(reinterpret_cast<double*>(totals) + threadIdx.x) {
        for (int i = 0; i < kCount; ++i) this->totals[i * kApart] = 0;
    }

    // So many tiles that neither of the two sums is long, and eight groups at least.
    __device__ static int group(int tiles) {
        int of_group = 1;
        while (of_group * (of_group < 8 ? 8 : of_group) < tiles) of_group *= 2;
        return of_group;
    }
    __device__ void end_group() {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            double& sum = sums[i / 16][i / 4 % 4][i % 4];
            totals[i * kApart] += sum;
            sum = 0;
        }
    }

    __device__ void add(const char* tile_x, const char* tile_w) {
#pragma unroll
        for (int k = 0; k < MmaTile<double>::kDepth; k += 8) {
            double b[2][4];
            for (int half = 0; half < 2; ++half)
                load_rows<w_by_row>(b[half], tile_w, right + 32 * half, k);
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                double a[4];
                load_rows<x_by_row>(a, tile_x, down + 16 * m, k);
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    mma(sums[m][i], a, {b[i / 2][i % 2], b[i / 2][i % 2 + 2]});
            }
        }
    }
    __device__ void take_part(int m, double (&each)[16]) const {
        for (int i = 0; i < 16; ++i) each[i] = totals[(16 * m + i) * kApart];
    }
    __device__ int row(int m, int i) const { return down + 16 * m + pair<x_by_row>(n) + i / 2 % 2; }
    __device__ int column(int i) const {
        return right + i / 8 * 32 + pair<w_by_row>(2 * k + i % 2) + i / 4 % 2;
    }
};

#endif
