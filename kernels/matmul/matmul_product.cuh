// What all versions of matmul share: addressing, activations, the epilogue of one element, and
// tiles.
#pragma once

#include "matmul.h"
#include "rows.cuh"

// Rows of w per unit: 2 with swiglu, where row u belongs to the left half of z and row units + u to
// the right one.
template <class T>
__host__ __device__ int rows_per_unit(const Product<T>& p) {
    return p.act == kSwiglu ? 2 : 1;
}

template <class T>
__device__ const T* at(const Operand<T>& of, int64_t matrix, int64_t row, int64_t col) {
    return of.data + matrix * of.matrix + row * of.row + col * of.col;
}

// ---- act and its derivative

template <class A>
__device__ A activated(Act act, A z) {
    switch (act) {
        case kRelu:
            return z > 0 || z != z ? z : A(0);
        case kGelu:
            return z * normcdf(z);
        case kSilu:
            return z / (1 + exp(-z));
        default:
            return z;
    }
}

template <class A>
__device__ A act_gradient(Act act, A z) {
    switch (act) {
        case kRelu:
            return z > 0 ? A(1) : A(0);
        case kGelu:  // the normal distribution, and z times its density
            return normcdf(z) + z * (exp(-z * z / 2) * A(0.3989422804014327));
        case kSilu: {
            const A s = 1 / (1 + exp(-z)), rest = 1 / (1 + exp(z));  // 1 - s would lose digits
            return s * (1 + z * rest);
        }
        default:
            return 1;
    }
}

// ---- epilogue

// An element of z before rounding.
template <class T>
__device__ Acc<T> z_of(const Product<T>& p, Acc<T> sum, int64_t column) {
    return p.scale * sum + (p.bias ? Acc<T>(p.bias[column]) : Acc<T>(0));
}

// The epilogue of one element: writes y, and z if it is wanted. gate: the accumulator of the right
// half of z, with swiglu. Rounding happens here and nowhere else.
template <class T>
__device__ void epilogue_element(const Product<T>& p, int64_t matrix, int64_t row, int64_t unit,
                                 Acc<T> sum, Acc<T> gate) {
    const int64_t r = matrix * p.rows + row, i = r * p.units + unit;
    const Acc<T> z = z_of(p, sum, unit);
    Acc<T> y;
    if (p.act == kSwiglu) {
        const Acc<T> right = z_of(p, gate, p.units + unit);
        T* const to = p.z + r * 2 * p.units + unit;
        if (p.z) to[0] = T(z), to[p.units] = T(right);
        y = activated(kSilu, z) * right;
    } else {
        if (p.z) p.z[i] = T(z);
        y = activated(p.act, z);
    }
    p.y[i] = T(p.residual ? y + Acc<T>(p.residual[i]) : y);
}

// Whether y is just z, rounded. The epilogue for few rows has a fast path for that.
template <class T>
__device__ bool is_linear(const Product<T>& p) {
    return p.act == kNone && !p.residual && !p.z;
}

// from[n][i] for an n that is not known at compile time. Registers have no addresses, so n is
// compared with each possible value; the code that uses the result is then compiled once instead of
// once per n.
template <class A, int parts, int N>
__device__ A select_register(const A (&from)[parts][N], int n, int i) {
    A value = from[0][i];
#pragma unroll
    for (int k = 1; k < parts; ++k) value = k == n ? from[k][i] : value;
    return value;
}
template <class A, int parts, int N>
__device__ void select_chunk(const A (&from)[parts][N], int n, A (&to)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = select_register(from, n, i);
}

// ---- tiles of y

struct TilePlace {
    int64_t matrix, row, column;  // of tiles
};

// A grid of one block per tile of y. A tile has this many rows and columns of x w^T; with swiglu
// half of the columns are units.
struct TileGrid {
    int64_t batch, rows, columns;

    TileGrid(int64_t batch, int64_t rows, int64_t wide, int tile_rows, int tile_columns)
        : batch(batch),
          rows(ceil_div<int64_t>(rows, tile_rows)),
          columns(ceil_div<int64_t>(wide, tile_columns)) {}

    template <class T>
    TileGrid(const Product<T>& p, int tile_rows, int tile_columns)
        : TileGrid(p.batch, p.rows, p.units * rows_per_unit(p), tile_rows, tile_columns) {}

    int64_t tiles() const { return batch * rows * columns; }

    __device__ TilePlace place(int64_t tile) const {
        return {tile / columns / rows, tile / columns % rows, tile % columns};
    }
    // As GroupGrid has it (grouped_matmul_groups.cuh): here the place is one of the product itself.
    template <class T>
    __device__ bool find(int64_t tile, const Product<T>&, TilePlace& at) const {
        at = place(tile);
        return true;
    }
};

// The rows of x or w of a tile: two halves of neighbouring rows.
template <int count>
struct TileRows {
    int64_t first[2], end[2];

    // For x, and for w without swiglu: the second half follows the first.
    __device__ static TileRows of(int64_t tile, int64_t rows) {
        return {{tile * count, tile * count + count / 2}, {rows, rows}};
    }
    // For w: with swiglu the first half belongs to the left half of z, the second to the right.
    template <class T>
    __device__ static TileRows of_w(const Product<T>& p, int64_t tile) {
        if (p.act != kSwiglu) return of(tile, p.units);
        const int64_t unit = tile * (count / 2);
        return {{unit, p.units + unit}, {p.units, 2 * p.units}};
    }
    // Row r of the tile, or -1 if the matrix has none.
    __device__ int64_t operator()(int r) const {
        const bool second = r >= count / 2;
        const int64_t row = (second ? first[1] : first[0]) + r % (count / 2);
        return row < (second ? end[1] : end[0]) ? row : -1;
    }
};

// Whether rows of x or w, or their columns, may be read 16 bytes at a time.
template <class T>
bool reads_in_vectors(const Operand<T>& from) {
    const int64_t other = from.col == 1 ? from.row : from.col;
    return (from.col == 1 || from.row == 1) && other % kVec<T> == 0 && from.matrix % kVec<T> == 0 &&
           is_aligned(from.data);
}
