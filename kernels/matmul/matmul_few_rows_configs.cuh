// matmul for few rows of x: the consumers of matmul_few_rows.cuh, and the choice between them.
#pragma once

#include "matmul_few_rows_consumer.cuh"
#include "matmul_few_rows_plan.h"
#include "matmul_split_k.cuh"

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
            if constexpr (by_column) {
                for (int unit = 0; unit < units; unit += 64) load(unit * kTileRow, first + unit, k);
            } else {
                load(0, k, first);
            }
        }
    }
    __device__ void fetch_x(const Maps& maps, int step, const FewRowsTile& tile, Mbarrier& full) {
        tma_load(x, maps.x, step * kTileDepth, tile.row, tile.matrix, full);
    }
#endif
};

// As many stages as fit into 227 KB beside the accumulators that `max_splits` blocks exchange.
constexpr int few_rows_stages(int rows, int units, int accumulators, int max_splits) {
    const int chunks = max_splits == 1 ? 1 : ceil_div(accumulators / 4, max_splits) * max_splits;
    const int of_group = chunks * kWarpgroup * int(sizeof(Vec<float, 4>));
    const int groups = rows * units / (kWarpgroup * accumulators);
    return (230000 - groups * of_group) / ((rows + units) * kTileRow);
}

// ---- operands swapped: each warpgroup has 64 units, and the accumulators hold y^T = w x^T.

template <class T, int rows, int units, int max_splits, bool by_column>
struct FewRows : FewRowsTransposed<rows, units> {
    static constexpr int kDepth = kTileDepth, kBlocksPerSm = 1, kPending = 1;
    static constexpr int kMaxSplits = max_splits;
    static constexpr int kStages = few_rows_stages(rows, units, rows / 2, max_splits);
    static constexpr bool kByColumn = by_column;
    using Stage = FewRowsStage<T, rows, units, by_column>;

    const int group = units == 64 ? 0 : warpgroup_number();

    __device__ explicit FewRows(int) {}
    static int units_of_box(const Product<T>& p) {
        return by_column ? 64 : rows_per_unit(p) == 2 ? 8 : units;
    }

#if HAS_WGMMA
    __device__ void multiply(const Stage& stage, const Product<T>&, int) {
        const T* const w = stage.w + group * 64 * kTileDepth;
        ::multiply<by_column, false>(this->accum, w, stage.x, true);
    }
#endif
};

// ---- operands not swapped: the accumulators hold y = x w^T, of at most 64 rows of x. A chunk has
// two rows of x, 8 apart, and two units; with swiglu the second half of a tile is that of w.

template <class T, int units, int max_splits, bool by_column>
struct FewRowsUntransposed : FewRowsAccumulators<units / 2> {
    static constexpr int kRows = 64, kUnits = units, kGroups = 1;
    static constexpr int kGates = units / 16, kMaxSplits = max_splits, kSlicedK = 1;
    static constexpr int kDepth = kTileDepth, kBlocksPerSm = 1, kPending = 1;
    static constexpr int kStages = few_rows_stages(kRows, units, units / 2, max_splits);
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

    __device__ explicit FewRowsUntransposed(int) {}
    static int units_of_box(const Product<T>& p) { return units / rows_per_unit(p); }

#if HAS_WGMMA
    __device__ static int row(const FewRowsTile& tile, int i) { return tile.row + accum_row(i); }
    __device__ void multiply(const Stage& stage, const Product<T>&, int) {
        ::multiply<false, by_column>(this->accum, stage.x, stage.w, true);
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
bool launch_few_rows(const Product<T>& p, cudaStream_t stream, const FewRowsCut& cut = {}) {
    Maps maps;
    if (!can_few_rows<Consumer, Product<T>>() || !fits_tma(p)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, rows_of_tile<Consumer>(p.rows, cut)) ||
        !make_map(maps.w, p, p.w, p.units * rows_per_unit(p), Consumer::units_of_box(p),
                  kFewRowsPromotion))
        return false;
    return launch_few_rows<Consumer>(p, maps, p.batch, p.units * rows_per_unit(p), stream, cut);
}

// ---- up to 64 rows. There are few widths of tiles, because each is a kernel: 64 units, with
// split-K over two blocks or more; 48 and 112 without split-K, because tiles of 64 leave many
// multiprocessors idle for, say, 6144 or 28672 units. The fastest is the one with which a
// multiprocessor reads the fewest rows of x and w for a step of k.
template <class T>
int units_of_few_rows(const Product<T>& p) {
    const int64_t steps = ceil_div<int64_t>(p.depth, kTileDepth), count = multiprocessors();
    const int64_t wide = p.units * rows_per_unit(p);
    int best = 64;
    double fewest = 0;
    for (int units : {64, 48, 112}) {
        if (units != 64 && p.w.col != 1) continue;
        const int64_t tiles = p.batch * ceil_div<int64_t>(wide, units);
        const int most = units == 64 ? kMaxFewRowsSplits : 1;
        const int splits = few_rows_splits(tiles, steps, count, most);
        double reads = double(ceil_div(tiles, count / splits) * (p.rows + units)) / splits;
        if (units == 64 && p.rows <= 16) reads *= 0.85;  // more weights are on their way (FewRows)
        if (units == 64 || reads < fewest) best = units, fewest = reads;
    }
    return best;
}

template <bool by_column, class T>
bool launch_up_to_64_rows(const Product<T>& p, cudaStream_t stream) {
    const int units = units_of_few_rows(p);
    if (p.rows <= 16 && units == 64)
        return launch_few_rows<FewRows<T, 16, 64, kMaxFewRowsSplits, by_column>>(p, stream);
    if constexpr (!by_column) {
        if (units == 48) return launch_few_rows<FewRowsUntransposed<T, 48, 1, false>>(p, stream);
        if (units == 112) return launch_few_rows<FewRowsUntransposed<T, 112, 1, false>>(p, stream);
    }
    return launch_few_rows<FewRowsUntransposed<T, 64, kMaxFewRowsSplits, by_column>>(p, stream);
}

// ---- 65 to 1024 rows: tiles of 64 or 128 units, by as many rows as they share evenly, for which
// there is a kernel every 16 or 32 rows.

template <class T>
FewRowsPlan few_rows_plan(const Product<T>& p) {
    return few_rows_plan(p.batch, p.rows, p.units * rows_per_unit(p), p.depth, multiprocessors());
}

template <int rows, int units, bool by_column, class T>
bool launch_few_rows_plan(const Product<T>& p, const FewRowsCut& cut, cudaStream_t stream) {
    if constexpr (rows <= 160) {
        if (cut.splits > 1)
            return launch_few_rows<FewRows<T, rows, units, 2, by_column>>(p, stream, cut);
    }
    return launch_few_rows<FewRows<T, rows, units, 1, by_column>>(p, stream, cut);
}
// Launches the kernel of the plan, of those for so many units and each number of rows.
template <bool by_column, int units, int... rows, class T>
bool launch_few_rows_of(const Product<T>& p, const FewRowsPlan& plan, cudaStream_t stream) {
    return (
        (plan.rows == rows && launch_few_rows_plan<rows, units, by_column>(p, plan.cut, stream)) ||
        ...);
}
template <bool by_column, class T>
bool launch_few_rows_plan(const Product<T>& p, const FewRowsPlan& plan, cudaStream_t stream) {
    return plan.units == 64
               ? launch_few_rows_of<by_column, 64, 64, 96, 128, 160>(p, plan, stream)
               : launch_few_rows_of<by_column, 128, 96, 112, 128, 144, 160, 192, 224, 256>(
                     p, plan, stream);
}

// ---- the choice

// Whether a product uses these tiles: up to 64 rows always, up to 1024 if they are faster than
// those for many rows.
template <class T>
bool is_for_few_rows(const Product<T>& p) {
    if (p.rows == 0 || p.x.col != 1 || (p.w.col != 1 && p.act == kSwiglu)) return false;
    if (p.rows <= 64) return true;
    const FewRowsPlan plan = few_rows_plan(p);
    return plan.units > 0 && plan.clocks < clocks_of_many_rows(p);
}

// False if there are more rows, or this GPU or the layout of x and w does not allow it.
template <class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    if (!is_for_few_rows(p)) return false;
    if (p.rows <= 64)
        return p.w.col == 1 ? launch_up_to_64_rows<false>(p, stream)
                            : launch_up_to_64_rows<true>(p, stream);
    const FewRowsPlan plan = few_rows_plan(p);
    return p.w.col == 1 ? launch_few_rows_plan<false>(p, plan, stream)
                        : launch_few_rows_plan<true>(p, plan, stream);
}
