// Groups of rows, whose sizes only the device knows: a grouped product is a dense one for each
// group, and the kernels of matmul compute it with the grid of tiles below.
#pragma once

#include "grouped_matmul.h"
#include "matmul_product.cuh"

__device__ inline int64_t begin_of(const Groups& groups, int64_t g) {
    return g == 0 ? 0 : groups.ends[g - 1];
}
__device__ inline int64_t rows_of(const Groups& groups, int64_t g) {
    return groups.ends[g] - begin_of(groups, g);
}
// How many groups there are, 0 where the offsets are wrong.
__device__ inline int64_t count_of(const Groups& groups) { return groups.ends[groups.count]; }

// The dense product of group g. `all` is the whole one:
//
//   kRows     x [rows, depth], w [groups, wide, depth], y [rows, units], z [rows, wide]
//   kDepth    x [rows, depth], w [units, depth], y [groups, rows, units]
template <Grouped grouped, class T>
__device__ Product<T> product_of_group(const Product<T>& all, const Groups& groups, int64_t g) {
    Product<T> p = all;
    const int64_t begin = begin_of(groups, g);
    p.batch = 1;
    if (grouped == Grouped::kRows) {
        p.rows = rows_of(groups, g);
        p.x.data += begin * p.x.row;
        p.w.data += g * p.w.matrix;
        p.y += begin * p.units;
        if (p.z) p.z += begin * p.units * rows_per_unit(p);
    } else {
        p.depth = rows_of(groups, g);
        p.x.data += begin * p.x.col;
        p.w.data += begin * p.w.col;
        p.y += g * p.rows * p.units;
    }
    return p;
}

// A grid of blocks for all tiles that there may be. Each block looks its tile up; those left over
// find none. Groups lie one behind the other, and tiles do not reach from one into the next.
template <Grouped grouped>
struct GroupGrid {
    Groups groups;
    int64_t tile_rows, rows, columns;  // rows, columns: of tiles; rows at most, of all groups

    template <class T>
    GroupGrid(const Product<T>& p, int tile_rows, int tile_columns, const Groups& groups)
        : groups(groups), tile_rows(tile_rows) {
        columns = ceil_div<int64_t>(p.units * rows_per_unit(p), tile_columns);
        rows = grouped == Grouped::kRows ? p.rows / tile_rows + smaller(groups.count, p.rows)
                                         : groups.count * ceil_div<int64_t>(p.rows, tile_rows);
    }

    int64_t tiles() const { return rows * columns; }

    // Finds a tile's place in the product of its group, which p becomes. False: there is none.
    template <class T>
    __device__ bool find(int64_t tile, Product<T>& p, TilePlace& place) const {
        int64_t row = tile / columns;
        const int64_t count = count_of(groups);
        for (int64_t g = 0; g < count; ++g) {
            const int64_t of_group = grouped == Grouped::kRows ? rows_of(groups, g) : p.rows;
            const int64_t down = ceil_div(of_group, tile_rows);
            if (row < down) {
                p = product_of_group<grouped>(p, groups, g);
                place = {0, row, tile % columns};
                return true;
            }
            row -= down;
        }
        return false;
    }
};
