// matmul where tiles are few and the depth is long, as for the gradient of a weight: the tiles of
// the last round, which are too few for all multiprocessors, are multiplied in parts.
#pragma once

#include "matmul_few_rows_tiles.cuh"

// ---- split: each of these tiles is the work of several blocks. A block has a part of the depth,
// and leaves its sums in memory, as floats. A second kernel adds up the parts of a tile, always in
// the same order, and makes y of them.
// Flaw: the sums of all parts are written and read.

// A warpgroup finishes 32 units of 64 rows of a tile; with swiglu, of both halves of z.
template <class T, int columns, int halves>
__global__ void WGMMA_KERNEL(kWarpgroup)
    matmul_add_parts(Product<T> p, TileOrder order, Split split) {
#if HAS_WGMMA
    constexpr int kPieces = columns / (kChunk * halves), kThreads = kConsumers * kWarpgroup;
    constexpr int kOfHalf = kChunk / 2;  // of a thread's sums
    alignas(kTileAlign) __shared__ Boxes boxes;
    const float* const parts = grid_dependency_wait(p.parts);
    const int piece = blockIdx.x % kPieces, group = blockIdx.x / kPieces % kConsumers;
    const int tile = blockIdx.x / kPieces / kConsumers, thread = group * kWarpgroup + threadIdx.x;
    float sums[halves * kOfHalf] = {};
#pragma unroll 4
    for (int n = 0; n < split.parts; ++n) {
        const float* const part =
            parts + (int64_t(n) * split.others + tile) * (kTileRows * columns) + thread * 4;
#pragma unroll
        for (int i = 0; i < halves * kOfHalf; i += 4) {
            const int half = i / kOfHalf;
            const int of_tile = half * (columns / 4) + piece * kOfHalf + i % kOfHalf;
            const Vec<float, 4> four = load<4>(part + of_tile * kThreads);
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[i + k] += four[k];
        }
    }
    TilePlace place;
    order.at(split.whole + tile, 0, place);
    finish(sums, p, boxes, place.matrix, int(place.row) * kTileRows + group * 64,
           place.column * (columns / halves) + piece * kChunk, 0);
#endif
}

// Tiles of so many columns, and which of them are split.
struct SplitPlan {
    int columns = 0;
    Split split;
    int64_t parts = 0;  // of all tiles together; 0: they are whole
    double cost = 0;

    int64_t floats() const { return parts * kTileRows * columns; }
};

// What a product costs, counted in steps of tiles of 256 columns (0.6 us); measured on an H200.
constexpr double kSplitCost = 2.5;       // the second kernel, and the end of the first one
constexpr double kPartCost = 0.125;      // to write and read the sums of a part of 256 columns
constexpr double kBytesOfStep = 2.5e6;   // that memory gives meanwhile
constexpr double kWorthSplitting = 0.9;  // of what whole tiles cost
constexpr int kMostParts = 16;           // of a tile
constexpr int64_t kMostFloats = 16 << 20;
constexpr int64_t kLeastSteps = 10;  // of a depth that is split

// The tiles that fill rounds of all multiprocessors, at_once, are whole, the others in parts.
inline SplitPlan split_plan(int64_t tiles, int columns, int64_t steps, int parts, int64_t at_once,
                            double floor) {
    const int64_t whole = tiles / at_once * at_once;
    const int64_t of_others = (tiles - whole) * parts;
    const int64_t rounds = ceil_div(of_others, at_once), longest = ceil_div<int64_t>(steps, parts);
    const double work = cost_of_step(columns) * double(whole / at_once * steps + rounds * longest);
    const double cost = work < floor ? floor : work;
    if (parts == 1) return {columns, {}, 0, kWorthSplitting * cost};
    const double added = kSplitCost + kPartCost * double(of_others) * columns / 256;
    const Split split = {int(whole), parts, int(tiles - whole), int(longest)};
    return {columns, split, of_others, cost + added};
}

// The cheapest one. Tiles beside those in parts are whole in plain products alone.
template <class T>
SplitPlan split_plan(const Product<T>& p) {
    const int64_t steps = ceil_div<int64_t>(p.depth, kTileRow / sizeof(T));
    const int64_t at_once = multiprocessors();
    const int64_t wide = p.units * halves(p);
    const double bytes =
        double(sizeof(T)) * p.batch * (double(p.rows + wide) * p.depth + double(p.rows) * p.units);
    SplitPlan best;
    for (int columns : kColumnsOfTiles) {
        if (!has_tiles(p, columns)) continue;
        const int most_parts = columns == 96 || columns == 192 ? 1 : kMostParts;
        const int64_t tiles = TileGrid(p, kTileRows, columns).tiles();
        for (int parts = 1; parts <= most_parts && parts <= steps; ++parts) {
            const SplitPlan plan =
                split_plan(tiles, columns, steps, parts, at_once, bytes / kBytesOfStep);
            if (!is_plain(p) && plan.split.whole > 0 && plan.parts > 0) continue;
            if (plan.floats() > kMostFloats) continue;
            if (best.columns == 0 || plan.cost < best.cost) best = plan;
        }
    }
    return best;
}

// Floats that a product leaves for the second kernel; 0 where it is not split.
template <class T>
int64_t split_floats(const Product<T>& p) {
    using Whole = Plan<T, 256, 1, true>;
    const bool is_deep = p.depth >= kLeastSteps * kTileDepth;
    if (is_for_few_rows(p) || !is_deep || adds_to_y(p) || !fits_tma(p)) return 0;
    if (p.units % kVec<T> != 0) return 0;
    const int64_t floats = split_plan(p).floats();
    return floats > 0 && has_wgmma(matmul_specialized<T, Whole>, Whole::kThreads) ? floats : 0;
}

// The second kernel.
template <int columns, class T>
void launch_add_parts(const Product<T>& p, const Split& split, cudaStream_t stream) {
    const TileOrder order(TileGrid(p, kTileRows, columns), 1, kHigh);
    const int64_t pieces = int64_t(split.others) * kConsumers * (columns / kChunk / halves(p));
    const auto launch = [&](auto kernel) {
        launch_secondary(kernel, 1, unsigned(pieces), dim3(kWarpgroup), stream, p, order, split);
    };
    if constexpr (columns > 64) {
        if (p.act == kSwiglu) return launch(matmul_add_parts<T, columns, 2>);
    }
    launch(matmul_add_parts<T, columns, 1>);
}

template <int columns, class T>
bool launch_split(const Product<T>& p, const SplitPlan& plan, cudaStream_t stream) {
    if (!launch_plan<Plan<T, columns, 1, true>>(p, kHigh, stream, plan.split)) return false;
    launch_add_parts<columns>(p, plan.split, stream);
    return true;
}

// False: it cannot be split, as x, w and y lie in memory.
template <class T>
bool launch_split(const Product<T>& p, cudaStream_t stream) {
    const SplitPlan plan = split_plan(p);
    if (plan.columns == 64) return launch_split<64>(p, plan, stream);
    return plan.columns == 128 ? launch_split<128>(p, plan, stream)
                               : launch_split<256>(p, plan, stream);
}
