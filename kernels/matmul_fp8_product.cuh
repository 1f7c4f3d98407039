// What all versions of matmul_fp8 do alike: make y of the sums.
#pragma once

#include "float8.cuh"
#include "matmul_fp8.h"
#include "matmul_product.cuh"

__device__ inline const float& scale_at(const Scales& scales, int64_t row, int64_t block) {
    return scales.data[(row >> scales.shift) * scales.row + block * scales.block];
}

// An element of y, before it is rounded. total: over all k; where scales differ along k they are in
// it already.
template <class T>
__device__ float y_of(const Float8Product<T>& p, int64_t row, int64_t unit, float total) {
    if (!p.by_block) total = total * scale_at(p.x_scale, row, 0) * scale_at(p.w_scale, unit, 0);
    return p.bias ? total + float(p.bias[unit]) : total;
}

template <class T>
__device__ void put(const Float8Product<T>& p, int64_t row, int64_t unit, float total) {
    p.y[row * p.units + unit] = T(y_of(p, row, unit, total));
}

// What the sums over a block of k are multiplied by before they are added up: in rows and in
// columns of one tile, whose w_scale is the same as a tile has 128 columns.
template <class T>
__device__ float block_scale(const Float8Product<T>& p, int64_t row, int64_t unit, int64_t block) {
    if (!p.by_block) return 1;
    return scale_at(p.x_scale, smaller(row, p.rows - 1), block) * scale_at(p.w_scale, unit, block);
}
