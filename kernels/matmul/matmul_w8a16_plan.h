// How matmul_w8a16 computes a product of more rows than few: the weights are converted as a tile
// needs them, or all of them first, and then multiplied by matmul. A model of the time decides.
#pragma once

#include "matmul_few_rows_plan.h"

constexpr int64_t kMostFewRows = 64;  // up to which there are kernels for so few rows alone

enum Int8Plan { kConvertFirst, kNarrowTiles, kWideTiles, kTallTiles };

// Blocks of a cluster that may share k. Accumulators of tiles of 256 rows leave no shared memory to
// exchange them.
constexpr int max_int8_splits(int rows, int units) { return units == 64 ? 4 : rows <= 128 ? 2 : 1; }

// Times in us, measured on an H200. Over 27 shapes of 72 to 2048 rows the model is off by 6% in the
// median and 31% at most, and the plan that it chooses takes 0.6% longer than the fastest, on
// average, and 16% at most.
constexpr double kInt8Start = 2.6;         // of a kernel: launch, first loads, epilogue
constexpr double kInt8Exchange = 1.0;      // of the accumulators of a cluster
constexpr double kConvertStart = 1.2;      // of the kernel that converts
constexpr double kConvertedBytes = 4.2e6;  // in a us: a byte read for each weight and two written
constexpr double kMatmulStart = 3.0, kMatmulStep = 0.7;  // matmul; a step of 64 of k, 256 columns
constexpr double kMatmulSplit = 2.5;                     // of split-K, in such steps
constexpr double kMatmulPartial = 0.125;  // to write and read a partial product of 256 columns

// A tile's rows and units, the least splits of k that it is compiled for, and the time of a step of
// 128 of k.
struct Int8Tile {
    Int8Plan plan;
    int rows, units, least_splits;
    double step;
};
constexpr Int8Tile kInt8Tiles[] = {
    {kNarrowTiles, 128, 64, 2, 0.64},
    {kWideTiles, 128, 128, 1, 0.96},
    {kTallTiles, 256, 128, 1, 1.6},
};

inline double time_of_tiles(const Int8Tile& tile, int64_t rows, int64_t units, int64_t depth,
                            int processors) {
    const int64_t tiles = ceil_div<int64_t>(rows, tile.rows) * ceil_div<int64_t>(units, tile.units);
    const int64_t steps = ceil_div<int64_t>(depth, 128);
    int splits = few_rows_splits(tiles, steps, processors, max_int8_splits(tile.rows, tile.units));
    if (splits < tile.least_splits) splits = tile.least_splits;
    const int64_t rounds = ceil_div<int64_t>(tiles, processors < splits ? 1 : processors / splits);
    return kInt8Start + (splits > 1 ? kInt8Exchange : 0) +
           tile.step * double(rounds * ceil_div<int64_t>(steps, splits));
}

// Whole tiles, or tiles that are split along k.
inline double time_of_matmul(int64_t rows, int64_t units, int64_t depth, int processors) {
    const int64_t steps = ceil_div<int64_t>(depth, 64);
    double least = 0;
    for (int columns : {64, 128, 192, 256}) {
        const int64_t tiles = ceil_div<int64_t>(rows, 128) * ceil_div<int64_t>(units, columns);
        for (int splits = 1; splits == 1 || (splits <= 8 && tiles * splits <= processors);
             ++splits) {
            if (splits > 1 && columns == 192) break;
            const double step = clocks_of_tile_step(columns) / clocks_of_tile_step(256);
            double cost = step * double(ceil_div<int64_t>(tiles * splits, processors) *
                                        ceil_div<int64_t>(steps, splits));
            if (splits > 1)
                cost += kMatmulSplit + kMatmulPartial * double(tiles * splits * columns) / 256;
            if (least == 0 || cost < least) least = cost;
        }
    }
    return kMatmulStart + kMatmulStep * least;
}

// by_block: whether scales differ along k, for which tall tiles have no registers.
inline Int8Plan int8_plan(int64_t rows, int64_t units, int64_t depth, bool by_block,
                          int processors) {
    Int8Plan best = kConvertFirst;
    double least = kConvertStart + 3 * double(units) * double(depth) / kConvertedBytes +
                   time_of_matmul(rows, units, depth, processors);
    for (const Int8Tile& tile : kInt8Tiles) {
        if (tile.plan == kTallTiles && by_block) continue;
        if (processors < tile.least_splits) continue;
        const double time = time_of_tiles(tile, rows, units, depth, processors);
        if (time < least) least = time, best = tile.plan;
    }
    return best;
}
