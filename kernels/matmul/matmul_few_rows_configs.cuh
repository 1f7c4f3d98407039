// matmul for few rows of x: the consumers of matmul_few_rows.cuh, and the choice between them.
#pragma once

#include "matmul_few_rows_consumer.cuh"
#include "matmul_wgmma_launch.cuh"

template <class T, int rows, int units, bool by_column>
struct FewRowsStage {
    static constexpr int kBoxesOfX = 1;
    T w[units * kTileDepth], x[rows * kTileDepth];

#if HAS_WGMMA
    // A w by column is loaded in boxes of 64 units.
    template <class Load>
    __device__ static void fetch_w(const Product<T>& p, int tile, int step, Load load) {
        const int first = tile * (units / rows_per_unit(p)), k = step * kTileDepth;
        if (!by_column && rows_per_unit(p) == 2) {
            for (int n = 0; n < units / 8; ++n)
                load(n * 8 * kTileRow, k, first + n / 2 * 8 + n % 2 * int(p.units));
        } else {
            by_column ? load(0, first, k) : load(0, k, first);
        }
    }
    __device__ void fetch_x(const Maps& maps, int step, const FewRowsTile& tile, Mbarrier& full) {
        tma_load(x, maps.x, step * kTileDepth, tile.row, tile.matrix, full);
    }
#endif
};

template <class T, int rows, int stages, bool by_column>
struct FewRows : FewRowsTransposed<rows> {
    static constexpr int kDepth = kTileDepth, kStages = stages, kBlocksPerSm = 1, kPending = 1;
    static constexpr bool kByColumn = by_column;
    static constexpr int kUnits = FewRowsTransposed<rows>::kUnits;
    using Stage = FewRowsStage<T, rows, kUnits, by_column>;

    __device__ explicit FewRows(int) {}
    static int units_of_box(const Product<T>& p) { return rows_per_unit(p) == 2 ? 8 : kUnits; }

#if HAS_WGMMA
    __device__ void multiply(const Stage& stage, const Product<T>&, int) {
        ::multiply<by_column, false>(this->accum, stage.w, stage.x, true);
    }
#endif
};

// ---- operands not swapped: each warpgroup has 64 rows of x, and the accumulators hold y = x w^T.
// A chunk has two rows of x, 8 apart, and two units; with swiglu the second half of a tile is that
// of w.

template <class T, int groups, int units, int max_splits, bool by_column>
struct FewRowsUntransposed : FewRowsAccumulators<units / 2> {
    static constexpr int kRows = 64 * groups, kUnits = units, kGroups = groups;
    static constexpr int kGates = units / 16, kMaxSplits = max_splits, kSlicedK = 1;
    static constexpr int kDepth = kTileDepth, kBlocksPerSm = 1, kPending = 1;
    // As many stages as fit into 227 KB beside the exchanged accumulators.
    static constexpr int kPartialBytes = (max_splits == 1 ? 1 : units / 8) * groups * 2048;
    static constexpr int kStages = (230000 - kPartialBytes) / ((kRows + units) * kTileRow);
    static constexpr bool kByColumn = by_column;
    struct Stage : FewRowsStage<T, kRows, units, by_column> {
#if HAS_WGMMA
        template <class Load>
        __device__ static void fetch_w(const Product<T>& p, int tile, int step, Load load) {
            if (rows_per_unit(p) == 1)
                return FewRowsStage<T, kRows, units, by_column>::fetch_w(p, tile, step, load);
            for (int half = 0; half < 2; ++half)
                load(half * (units / 2) * kTileRow, step * kTileDepth,
                     tile * (units / 2) + half * int(p.units));
        }
#endif
    };

    const int group = groups == 1 ? 0 : warpgroup_number();

    __device__ explicit FewRowsUntransposed(int) {}
    static int units_of_box(const Product<T>& p) { return units / rows_per_unit(p); }

#if HAS_WGMMA
    __device__ int row(const FewRowsTile& tile, int i) const {
        return tile.row + group * 64 + accum_row(i);
    }
    __device__ void multiply(const Stage& stage, const Product<T>&, int) {
        const T* const x = stage.x + group * 64 * kTileDepth;
        ::multiply<false, by_column>(this->accum, x, stage.w, true);
    }
    __device__ void epilogue(const Product<T>& p, const FewRowsTile& tile, int c,
                             const Vec<float, 4>& accum, const Vec<float, 4>& gates) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int unit = tile.column * (units / rows_per_unit(p)) + c * 8 + accum_column(i);
            if (row(tile, i) < tile.end && unit < p.units)
                epilogue_element(p, tile.matrix, row(tile, i), unit, accum[i], gates[i]);
        }
    }
    __device__ void epilogue_linear(const Product<T>& p, const FewRowsTile& tile, int c,
                                    const Vec<float, 4>& accum) const {
        const int unit = tile.column * units + c * 8 + accum_column(0);
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            store_pair(
                p, tile, row(tile, i), unit, pair_of_z(p, unit, unit + 1, accum[i], accum[i + 1]));
    }
#endif
};

// A step reads 128 bytes of a row of w; promoting to 256 bytes took 5% longer.
constexpr auto kFewRowsPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;

template <class Consumer, class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    Maps maps;
    if (!can_few_rows<Consumer, Product<T>>() || !fits_tma(p)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, rows_of_tile<Consumer>(p.rows)) ||
        !make_map(maps.w, p, p.w, p.units * rows_per_unit(p), Consumer::units_of_box(p),
                  kFewRowsPromotion))
        return false;
    return launch_few_rows<Consumer>(p, maps, p.batch, p.units * rows_per_unit(p), stream);
}

// The tile of a product of few rows. There are few sizes, because each is a kernel: 64 units, with
// split-K over two blocks or more; 48 and 112 without split-K, because tiles of 64 leave many
// multiprocessors idle for, say, 6144 or 28672 units; and 128 units by 128 rows, where pairs of
// blocks with split-K fill at least nine tenths of a wave.
struct FewRowsConfig {
    int groups = 0, units = 0;  // warpgroups of 64 rows; 0: no such tile fits
    int64_t blocks = 0;         // in the first wave
    double reads = 0;           // rows of x and w that a multiprocessor reads per step of k
};

// The fastest tile is the one that reads the fewest rows. Measured on an H200 for 63 to 256 rows of
// x.
template <class T>
FewRowsConfig few_rows_config(const Product<T>& p) {
    FewRowsConfig best;
    if (p.rows == 0 || p.rows > 256 || p.x.col != 1 || (p.w.col != 1 && p.act == kSwiglu))
        return best;
    const int groups = p.rows > 192 ? 2 : int(ceil_div<int64_t>(p.rows, 64));
    const int64_t steps = ceil_div<int64_t>(p.depth, kTileDepth), count = multiprocessors();
    const int64_t high = ceil_div<int64_t>(p.rows, 64 * groups);
    const int64_t rows = ceil_div(p.rows, high);  // of a tile
    const int64_t wide = p.units * rows_per_unit(p);
    for (int units : {64, 48, 112, 128}) {
        if (units != 64 && p.w.col != 1) continue;
        const int64_t tiles = p.batch * high * ceil_div<int64_t>(wide, units);
        const int most = units % 64 == 0 ? max_few_rows_splits(groups) : 1;
        const int splits = few_rows_splits(tiles, steps, count, most);
        const int64_t blocks = splits * tiles;
        if (units == 128) {
            const bool fill = 10 * splits * p.batch * high * wide >= 9 * count * units;
            if (groups != 2 || splits != 2 || blocks > count || !fill) continue;
        }
        const int64_t rounds = ceil_div<int64_t>(tiles, count / splits);
        double reads = double(rounds * (rows + units)) / splits;
        if (units == 64 && p.rows <= 16) reads *= 0.85;  // more weights are on their way (FewRows)
        if (best.groups == 0 || reads < best.reads)
            best = {groups, units, smaller(blocks, count), reads};
    }
    return best;
}

// Whether a product uses these tiles. With more than 64 rows it does not if they would leave a
// third of the multiprocessors idle or read more than the tiles for many rows.
template <class T>
bool is_for_few_rows(const Product<T>& p) {
    const FewRowsConfig plan = few_rows_config(p);
    if (plan.groups <= 1) return plan.groups == 1;
    if (3 * plan.blocks < 2 * multiprocessors()) return false;
    const int64_t beyond = ceil_div<int64_t>(p.rows, kTileRows) * kTileRows - p.rows;
    const double slower = beyond > kTileRows / 4 ? 1.2 : 1;  // for boxes that lie outside of x
    for (int columns : kColumnsOfTiles) {
        const int64_t tiles = TileGrid(p, kTileRows, columns).tiles();
        const int64_t rounds = ceil_div<int64_t>(tiles, multiprocessors());
        if (has_tiles(p, columns) && slower * double(rounds * (kTileRows + columns)) < plan.reads)
            return false;
    }
    return true;
}

template <int groups, bool by_column, class T>
bool launch_few_rows_of(const Product<T>& p, int units, cudaStream_t stream) {
    if constexpr (!by_column) {
        if (units == 48)
            return launch_few_rows<FewRowsUntransposed<T, groups, 48, 1, false>>(p, stream);
        if (units == 112)
            return launch_few_rows<FewRowsUntransposed<T, groups, 112, 1, false>>(p, stream);
        if constexpr (groups == 2) {
            if (units == 128)
                return launch_few_rows<FewRowsUntransposed<T, groups, 128, 2, false>>(p, stream);
        }
    }
    constexpr int most = max_few_rows_splits(groups);
    return launch_few_rows<FewRowsUntransposed<T, groups, 64, most, by_column>>(p, stream);
}
template <bool by_column, class T>
bool launch_few_rows_of(const Product<T>& p, cudaStream_t stream) {
    const FewRowsConfig plan = few_rows_config(p);
    if (p.rows <= 16 && plan.units == 64)
        return launch_few_rows<FewRows<T, 16, 21, by_column>>(p, stream);
    if (plan.groups == 1) return launch_few_rows_of<1, by_column>(p, plan.units, stream);
    return plan.groups == 2 ? launch_few_rows_of<2, by_column>(p, plan.units, stream)
                            : launch_few_rows_of<3, by_column>(p, plan.units, stream);
}

// False if there are more rows, or this GPU or the layout of x and w does not allow it.
template <class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    if (!is_for_few_rows(p)) return false;
    return p.w.col == 1 ? launch_few_rows_of<false>(p, stream)
                        : launch_few_rows_of<true>(p, stream);
}
