// Split-K: matmul with few tiles and a large depth, such as the gradient of a weight. The tiles of
// the last wave, too few for all multiprocessors, are split along k.
#pragma once

#include "matmul_wgmma_launch.cuh"

// ---- split-K: several blocks share a tile. Each multiplies a range of k and stores its
// accumulators to a workspace as floats. A second kernel adds up the partial products of a tile,
// always in the same order, and runs the epilogue.
// Flaw: the partial products of all splits are
// written and read.

// A warpgroup reduces 32 units of 64 rows of a tile, of both halves of z with swiglu, and runs
// their epilogue.
template <class T, int columns, int rows_per_unit>
__global__ void WGMMA_KERNEL(kWarpgroup)
    matmul_split_k_reduce(Product<T> p, TileScheduler scheduler, SplitK split_k) {
#if HAS_WGMMA
    launch_dependents();
    constexpr int kPieces = columns / (kChunk * rows_per_unit), kThreads = kConsumers * kWarpgroup;
    constexpr int kOfHalf = kChunk / 2;  // accumulators of a thread
    alignas(kTileAlign) __shared__ EpilogueBuffers buffers;
    const float* const workspace = grid_dependency_wait(p.workspace);
    const int piece = blockIdx.x % kPieces, group = blockIdx.x / kPieces % kConsumers;
    const int tile = blockIdx.x / kPieces / kConsumers, thread = group * kWarpgroup + threadIdx.x;
    float accum[rows_per_unit * kOfHalf] = {};
#pragma unroll 4
    for (int n = 0; n < split_k.splits; ++n) {
        const float* const partial =
            workspace + (int64_t(n) * split_k.split_tiles + tile) * (kTileRows * columns) +
            thread * 4;
#pragma unroll
        for (int i = 0; i < rows_per_unit * kOfHalf; i += 4) {
            const int half = i / kOfHalf;
            const int of_tile = half * (columns / 4) + piece * kOfHalf + i % kOfHalf;
            const Vec<float, 4> four = load<4>(partial + of_tile * kThreads);
#pragma unroll
            for (int k = 0; k < 4; ++k) accum[i + k] += four[k];
        }
    }
    TilePlace place;
    scheduler.at(split_k.whole + tile, 0, place);
    const Span rows = scheduler.rows(int(place.row), group, p.rows);
    const Span units = scheduler.units(int(place.column), columns / rows_per_unit, p.units);
    epilogue(accum, p, buffers, place.matrix, rows.first, units.first + piece * kChunk, 0,
             {rows.own, units.own});
#endif
}

// The width of the tiles, and which of them are split.
struct SplitKPlan {
    int columns = 0;
    SplitK split_k;
    int64_t partials = 0;  // of all tiles; 0: no tile is split
    double clocks = 0;

    int64_t floats() const { return partials * kTileRows * columns; }
};

constexpr int kMaxSplits = 16;  // of a tile
constexpr int64_t kMaxWorkspaceFloats = 16 << 20;
constexpr int64_t kLeastSteps = 10;  // of a split depth

// The plan for one width and number of splits. Tiles that fill whole waves of `at_once` blocks are
// whole, the others split.
inline SplitKPlan split_k_plan(int64_t tiles, int columns, int64_t steps, int splits,
                               int64_t at_once, bool by_tma) {
    const double whole = clocks_of_tile(columns, steps, by_tma);
    if (splits == 1) return {columns, {}, 0, double(ceil_div(tiles, at_once)) * whole};
    const int64_t waves = tiles / at_once, partials = (tiles - waves * at_once) * splits;
    const int64_t longest = ceil_div<int64_t>(steps, splits);
    const SplitK split_k = {
        int(waves * at_once), splits, int(tiles - waves * at_once), int(longest)};
    return {columns, split_k, partials,
            double(waves) * whole +
                double(ceil_div(partials, at_once) * longest) * clocks_of_tile_step(columns) +
                kClocksOfSecondKernel + kClocksOfPartialColumn * double(partials) * columns};
}

// The cheapest plan. Only a plain product may have whole and split tiles at once.
template <class T>
SplitKPlan split_k_plan(const Product<T>& p) {
    const int64_t steps = ceil_div<int64_t>(p.depth, kTileRow / sizeof(T));
    const int64_t at_once = multiprocessors();
    SplitKPlan best;
    for (int columns : kColumnsOfTiles) {
        if (!has_tiles(p, columns)) continue;
        const int max_splits = has_split_k(columns) ? kMaxSplits : 1;
        const int64_t tiles = TileGrid(p, kTileRows, columns).tiles();
        for (int splits = 1; splits <= max_splits && splits <= steps; ++splits) {
            const SplitKPlan plan = split_k_plan(
                tiles, columns, steps, splits, at_once, columns % 64 == 0 || can_store(p));
            if (!is_plain(p) && plan.split_k.whole > 0 && plan.partials > 0) continue;
            if (plan.floats() > kMaxWorkspaceFloats) continue;
            if (best.columns == 0 || plan.clocks < best.clocks) best = plan;
        }
    }
    return best;
}

// Whether the tiles of a product may be split.
template <class T>
bool may_split_k(const Product<T>& p) {
    using Whole = Plan<T, 256, 1, true>;
    return p.depth >= kLeastSteps * kTileDepth && !adds_to_y(p) && fits_tma(p) &&
           p.units % kVec<T> == 0 && has_wgmma(matmul_specialized<T, Whole>, Whole::kThreads);
}

// The time with tiles for many rows.
template <class T>
double clocks_of_many_rows(const Product<T>& p) {
    if (may_split_k(p)) return split_k_plan(p).clocks;
    double best = clocks_of_tiles(p, 256);
    for (int columns : kColumnsOfTiles)
        if (has_tiles(p, columns)) best = smaller(best, clocks_of_tiles(p, columns));
    return best;
}

// Launches the reduction.
template <int columns, class T>
void launch_split_k_reduce(const Product<T>& p, const SplitK& split_k, cudaStream_t stream) {
    const TileScheduler scheduler(
        TileGrid(p, kTileRows, columns), 1, kGroupRows, granules_of(p, true));
    const int64_t pieces =
        int64_t(split_k.split_tiles) * kConsumers * (columns / kChunk / rows_per_unit(p));
    const auto launch = [&](auto kernel) {
        launch_secondary(
            kernel, 1, unsigned(pieces), dim3(kWarpgroup), stream, p, scheduler, split_k);
    };
    if constexpr (columns > 64) {
        if (p.act == kSwiglu) return launch(matmul_split_k_reduce<T, columns, 2>);
    }
    launch(matmul_split_k_reduce<T, columns, 1>);
}

template <int columns, class T>
bool launch_split_k(const Product<T>& p, const SplitKPlan& plan, cudaStream_t stream) {
    if (!launch_plan<Plan<T, columns, 1, true>>(p, kGroupRows, stream, plan.split_k)) return false;
    launch_split_k_reduce<columns>(p, plan.split_k, stream);
    return true;
}

// False if the layout of x, w or y does not allow it.
template <class T>
bool launch_split_k(const Product<T>& p, cudaStream_t stream) {
    const SplitKPlan plan = split_k_plan(p);
    if (plan.columns == 64) return launch_split_k<64>(p, plan, stream);
    return plan.columns == 128 ? launch_split_k<128>(p, plan, stream)
                               : launch_split_k<256>(p, plan, stream);
}
