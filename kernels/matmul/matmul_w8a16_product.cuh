// What all versions of matmul_w8a16 share: the epilogue. The names are those of matmul_product.cuh,
// for kernels that serve both ops.
#pragma once

#include "matmul_fp8_product.cuh"
#include "matmul_w8a16.h"

template <class T>
__host__ __device__ int rows_per_unit(const Int8Product<T>&) {
    return 1;
}

// An element of y before rounding. total: over all k; scales that differ along k are already
// applied.
template <class T>
__device__ float z_of(const Int8Product<T>& p, float total, int64_t unit) {
    if (!p.by_block) total *= scale_at(p.w_scale, unit, 0);
    return p.bias ? total + float(p.bias[unit]) : total;
}
template <class T>
__device__ bool is_linear(const Int8Product<T>&) {
    return true;
}

template <class T>
__device__ void epilogue_element(const Int8Product<T>& p, int64_t, int64_t row, int64_t unit,
                                 float total, float = 0) {
    p.y[row * p.units + unit] = T(z_of(p, total, unit));
}

// The scale of a unit at k; 1 if scales do not differ along k.
template <class T>
__device__ float block_scale(const Int8Product<T>& p, int64_t unit, int64_t k) {
    return p.by_block ? scale_at(p.w_scale, smaller(unit, p.units - 1), k / kScaleBlock) : 1.f;
}
