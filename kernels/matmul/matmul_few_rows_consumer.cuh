// matmul for few rows of x: what its consumers have in common, the accumulators and their place in
// y.
#pragma once

#include "matmul_few_rows.cuh"

// The accumulators of a consumer thread, in chunks of four.
template <int N>
struct FewRowsAccumulators {
    static constexpr bool kReallocatesRegisters = N > 96;
    static constexpr bool kThreadsRead = false;
    float accum[1][N] = {};
#if HAS_WGMMA
    template <class P>
    __device__ void begin(const P&) {}
    __device__ auto& chunks() const { return reinterpret_cast<const float (&)[N / 4][4]>(accum); }
    __device__ Vec<float, 4> chunk(int c) const {
        Vec<float, 4> four;
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] = accum[0][4 * c + i];
        return four;
    }
#endif
};

// ---- up to 64 rows: the operands are swapped. w is the 64-row operand of wgmma, and x, which has
// fewer rows, the N operand: the accumulators hold y^T = w x^T. With tiles of 128 rows of w, each
// of two warpgroups has half of them. A chunk has two rows of x and two of w, 8 apart. With swiglu
// these belong to one unit, because of each 16 rows of a tile 8 belong to either half of w.

template <int rows, int units = 64>
struct FewRowsTransposed : FewRowsAccumulators<rows / 2> {
    static constexpr int kRows = rows, kUnits = units, kGroups = units / 64, kGates = 0;
    static constexpr int kMaxSplits = units == 64 ? 4 : 1, kSlicedK = 1;

#if HAS_WGMMA
    // The first of the 16 rows of w, or 8 units of swiglu, of this warp.
    template <class P>
    __device__ static int first_unit(const P& p, int tile) {
        const int warp = threadIdx.x / kWarp % (kUnits / 16);
        return tile * (kUnits / rows_per_unit(p)) + warp * (16 / rows_per_unit(p));
    }
    template <class P>
    __device__ static void epilogue(const P& p, const FewRowsTile& tile, int c,
                                    const Vec<float, 4>& accum, const Vec<float, 4>&) {
        const int lane = threadIdx.x % kWarp, unit = first_unit(p, tile.column) + lane / 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = tile.row + c * 8 + lane % 4 * 2 + i;
            if (row >= tile.end) continue;
            if (unit < p.units) epilogue_element(p, tile.matrix, row, unit, accum[i], accum[i + 2]);
            if (rows_per_unit(p) == 1 && unit + 8 < p.units)
                epilogue_element(p, tile.matrix, row, unit + 8, accum[i + 2], 0.f);
        }
    }
    // Transposes 8 x 8 elements at a time within a warp, so that a thread has two neighbours of a
    // row.
    template <class P>
    __device__ static void epilogue_linear(const P& p, const FewRowsTile& tile, int c,
                                           const Vec<float, 4>& accum) {
        const int lane = threadIdx.x % kWarp, row = tile.row + c * 8 + lane / 4;
        const int of_warp = first_unit(p, tile.column);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int row_of_w = of_warp + i * 4 + lane / 4;
            const uint32_t transposed =
                transposed_8x8(pair_of_z(p, row_of_w, row_of_w, accum[i], accum[i + 1]));
            store_pair(p, tile, row, of_warp + i * 4 + lane % 4 * 2, transposed);
        }
    }
#endif
};
