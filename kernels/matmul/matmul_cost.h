// What the plans of matmul and matmul_w8a16 reckon with.
#pragma once

#include "vec.cuh"

// The widths of a tile, in columns of y. Those that are no multiple of 64 are for a w by row and
// not for swiglu, and so is 192: their halves are not made of boxes of 64. Only multiples of 64
// store z or read a residual.
constexpr int kColumnsOfTiles[] = {64, 96, 128, 160, 192, 224, 256};

// Whether tiles of this width may be split along k.
constexpr bool has_split_k(int columns) {
    return columns == 64 || columns == 128 || columns == 256;
}

// The time of one step of k by width of the tile, relative to 256 columns. Narrow tiles cost more
// than their share because they reuse shared memory less. Measured on an H200.
inline double cost_of_step(int columns) {
    switch (columns) {
        case 64:
            return 0.45;
        case 96:
            return 0.48;
        case 128:
            return 0.535;
        case 160:
            return 0.665;
        case 192:
            return 0.79;
        case 224:
            return 0.9;
        default:
            return 1;
    }
}

// The time of a tile, in steps of tiles of 256 columns (0.6 us): of its steps, and of its epilogue,
// which stores boxes of 64 columns by TMA, or takes longer. Of 64 products of random shapes, split
// or not, a plan by these costs takes 2.6% longer than the fastest one, on average (H200).
inline double cost_of_tile(int columns, int64_t steps, bool by_tma = true) {
    const double epilogue = by_tma ? 1.92 * ceil_div(columns, 64) : 0.065 * columns;
    return cost_of_step(columns) * double(steps) + epilogue;
}

// The cost to write and read a partial product of 256 columns, in steps of tiles of so many (0.6
// us).
constexpr double kPartialCost = 0.125;

// ---- few rows: split-K

// The most splits of k, by the warpgroups of rows: with more rows, four splits would exchange more
// accumulators than they save.
constexpr int max_few_rows_splits(int groups) { return groups == 1 ? 4 : 2; }

// The number of splits. If there is at most one wave of tiles: as many as there are blocks for. If
// there are more tiles: two, if waves of half the steps finish earlier.
inline int few_rows_splits(int64_t tiles, int64_t steps, int64_t blocks, int max_splits) {
    int splits = 1;
    const auto is_there_room = [&](int more) {  // clusters of four leave multiprocessors idle
        return more * tiles <= (more > 2 ? blocks - blocks / 12 : blocks) && 4 * more <= steps;
    };
    while (2 * splits <= max_splits && is_there_room(2 * splits)) splits *= 2;
    if (splits > 1 || max_splits == 1 || steps < 8 || blocks < 2) return splits;
    const int64_t whole = ceil_div(tiles, blocks) * steps;
    return ceil_div(tiles, blocks / 2) * ceil_div<int64_t>(steps, 2) < whole ? 2 : 1;
}
