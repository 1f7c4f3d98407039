// What the plans of matmul and matmul_w8a16 reckon with.
#pragma once

#include "vec.cuh"

// The time of one step of k by width of the tile, relative to 256 columns. Narrow tiles cost more
// than their share because they reuse shared memory less. Measured on an H200.
inline double cost_of_step(int columns) {
    switch (columns) {
        case 64:
            return 0.4;
        case 96:
            return 0.48;
        case 128:
            return 0.535;
        default:
            return columns == 192 ? 0.79 : 1;
    }
}

// Costs, in steps of tiles of 256 columns (0.6 us), measured on an H200.
constexpr double kSplitCost = 2.5;      // of the second kernel and the end of the first
constexpr double kPartialCost = 0.125;  // to write and read a partial product of 256 columns

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
