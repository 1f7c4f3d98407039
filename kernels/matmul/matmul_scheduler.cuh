// The scheduler of matmul by wgmma: tiles for persistent blocks, and how split-K divides them.
#pragma once

#include "matmul_pipeline.cuh"

// Rows or units of a part of a tile. TMA takes longer for boxes that lie partly outside of a
// tensor, so a part at the edge moves inside, as far as is a multiple of `granule` and leaves that
// much its own: it begins at `first`, before its own first row or unit, and does not store what
// belongs to another tile.
struct Span {
    int first, own;

    // Span n of spans of `count` each. granule: 0 if it does not move.
    __host__ __device__ Span(int n, int count, int64_t size, int granule)
        : first(n * count), own(first) {
        if (own >= size || own + count <= size || granule == 0) return;
        const int64_t outside = smaller<int64_t>(own + count - size, count - granule);
        const int64_t moved = outside / granule * granule;
        if (moved <= own) first -= int(moved);
    }
};

// The coordinates of a tile, counted in tiles.
struct TileAt {
    int matrix, row, column;

    TileAt() = default;
    __device__ TileAt(const TilePlace& place)
        : matrix(int(place.matrix)), row(int(place.row)), column(int(place.column)) {}
};

constexpr int kGroupRows = 16;  // tiles of a column before the scheduler goes to the next column

// How far parts of tiles at the edge of y move inside: multiples of so many rows and units.
struct Granules {
    int rows = 0, units = 0;
};

// The scheduler of tiles for persistent blocks. A pair of blocks has two tiles, one below the
// other. Tiles are grouped by rows for L2 reuse.
struct TileScheduler {
    int batch, pairs, columns, pair;
    int group_rows;  // pairs of a column before the scheduler goes to the next column
    Granules granules;

    TileScheduler(const TileGrid& grid, int pair, int group_rows, Granules granules = {})
        : batch(int(grid.batch)),
          pairs(int(ceil_div<int64_t>(grid.rows, pair))),
          columns(int(grid.columns)),
          pair(pair),
          group_rows(group_rows),
          granules(granules) {}

    // The rows of half a tile of x, and the units of a tile.
    __host__ __device__ Span rows(int row, int half, int64_t of) const {
        return Span(2 * row + half, kTileRows / 2, of, granules.rows);
    }
    __host__ __device__ Span units(int column, int count, int64_t of) const {
        return Span(column, count, of, granules.units);
    }

    __host__ __device__ int places() const { return batch * pairs * columns; }

    // The tile of block `rank` of a pair at place n; false if there is no such place.
    __device__ bool at(int n, int rank, TilePlace& place) const {
        if (n >= places()) return false;
        const int i = n % (pairs * columns), first = i / (group_rows * columns) * group_rows;
        const int height = smaller(pairs - first, group_rows), within = i - first * columns;
        place = {n / (pairs * columns), (first + within % height) * pair + rank, within / height};
        return true;
    }
};

// Split-K: the first `whole` tiles are multiplied whole. The others are split along k into `splits`
// partial products, which matmul_split_k.cuh adds up. A work unit is a whole tile or one split of a
// tile; units are numbered whole tiles first, then the first split of all other tiles, and so on.
// Steps past the depth read zeros.
struct SplitK {
    int whole = 0x7fffffff, splits = 1;
    int split_tiles = 0;
    int steps = 0;  // of a split

    int work_units(int tiles) const { return split_tiles ? whole + split_tiles * splits : tiles; }

    // The tile of work unit n and its first step.
    __device__ int tile(int n, int& first) const {
        first = 0;
        if (n < whole) return n;
        first = (n - whole) / split_tiles * steps;
        return whole + (n - whole) % split_tiles;
    }
};
