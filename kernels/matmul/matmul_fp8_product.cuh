// What all versions of matmul_fp8 share: scales and the epilogue.
#pragma once

#include "float8.cuh"
#include "matmul_fp8.h"
#include "matmul_product.cuh"

__device__ inline const float& scale_at(const Scales& scales, int64_t row, int64_t block) {
    return scales.data[(row >> scales.shift) * scales.row + block * scales.block];
}

// An element of y before rounding. total: over all k; scales that differ along k are already
// applied.
template <class T>
__device__ float y_of(const Float8Product<T>& p, int64_t row, int64_t unit, float total) {
    if (!p.by_block) total = total * scale_at(p.x_scale, row, 0) * scale_at(p.w_scale, unit, 0);
    return p.bias ? total + float(p.bias[unit]) : total;
}

template <class T>
__device__ void epilogue_element(const Float8Product<T>& p, int64_t row, int64_t unit,
                                 float total) {
    p.y[row * p.units + unit] = T(y_of(p, row, unit, total));
}

// The scale of the accumulators of one block of k. The columns of a tile share their w_scale, as a
// tile is at most 128 wide.
template <class T>
__device__ float block_scale(const Float8Product<T>& p, int64_t row, int64_t unit, int64_t block) {
    if (!p.by_block) return 1;
    return scale_at(p.x_scale, smaller(row, p.rows - 1), block) * scale_at(p.w_scale, unit, block);
}
