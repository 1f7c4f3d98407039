// The plan of a product of few rows: its tiles, and the splits of k.
#pragma once

#include "matmul_cost.h"

// How a product is cut: into tiles below one another, and along k. 0: into as few tiles as hold the
// rows, and by few_rows_splits.
struct FewRowsCut {
    int64_t row_tiles = 0;
    int splits = 0;
};

constexpr int kMaxFewRowsSplits = 4;

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

// ---- 65 to 1024 rows: tiles of 64 or 128 units, by rows of x that tiles below one another share
// evenly. The fastest by the model of matmul_cost.h.

constexpr int64_t kMaxRowsOfFew = 1024;
constexpr int64_t kLeastDepthOfFew = 512;  // of the products that the model was fitted to

// The rows of the kernel for tiles of so many rows; 0 if there is none. There are fewer where
// reading x and w takes longer than to multiply them.
inline int few_rows_kernel(int64_t rows, int units, int splits) {
    const int64_t step = units == 128 && 96 < rows && rows <= 160 ? 16 : 32;
    const int64_t least = units == 128 ? 96 : 64;
    const int64_t most = rows < least ? least : ceil_div(rows, step) * step;
    return most <= (units == 128 && splits == 1 ? 256 : 160) ? int(most) : 0;
}

// A tile of few rows: its share of the steps, its epilogue, and the exchange of accumulators within
// a cluster. `rows` are read, and a kernel of `kernel_rows` rows multiplies them.
inline double clocks_of_few_rows(int64_t rows, int kernel_rows, int units, int64_t steps,
                                 int splits) {
    const double step = clocks_of_step(kernel_rows, units, double(rows), 0.82);
    const double width = double(rows) * units / 128;
    const double exchange = splits > 1 ? 1110 + 26.4 * width : 0;
    return step * double(ceil_div<int64_t>(steps, splits)) + 780 + 26.3 * width + exchange;
}

struct FewRowsPlan {
    int units = 0;  // of a tile; 0: there is no plan
    int rows = 0;   // of the kernel
    FewRowsCut cut;
    double clocks = 0;
};

// wide: rows of w.
inline FewRowsPlan few_rows_plan(int64_t batch, int64_t rows, int64_t wide, int64_t depth,
                                 int64_t blocks) {
    FewRowsPlan best;
    if (rows > kMaxRowsOfFew || depth < kLeastDepthOfFew) return best;
    const int64_t steps = ceil_div<int64_t>(depth, 64), least = ceil_div<int64_t>(rows, 256);
    for (int units : {64, 128}) {
        for (int64_t row_tiles = least; row_tiles < least + 8 && row_tiles * 32 <= rows;
             ++row_tiles) {
            const int64_t tile_rows = ceil_div(rows, row_tiles);
            const int64_t tiles = batch * row_tiles * ceil_div<int64_t>(wide, units);
            for (int splits : {1, 2}) {
                const int kernel_rows = few_rows_kernel(tile_rows, units, splits);
                if (kernel_rows == 0 || splits > blocks) continue;
                if (splits > 1 && (4 * splits > steps || splits * tiles > 2 * blocks)) continue;
                const double clocks =
                    double(ceil_div(tiles, blocks / splits)) *
                    clocks_of_few_rows(tile_rows, kernel_rows, units, steps, splits);
                if (best.units == 0 || clocks < best.clocks)
                    best = {units, kernel_rows, {row_tiles, splits}, clocks};
            }
        }
    }
    return best;
}
