// Which product the binding of matmul_fp8 asks its kernels for.
#pragma once

#include "float8.h"
#include "matmul.h"

// Where the scales of x or w are: the one of row r and block b of k, which has 128 of k.
struct Scales {
    const float* data;
    int64_t row, block;  // strides; 0 where all rows, or blocks, share a scale
    int shift;           // 2^shift rows share one
};

// Shapes as matmul_fp8.cu has them; bias may be null.
template <class T>
struct Float8Product {
    Operand<Float8> x, w;
    Scales x_scale, w_scale;
    bool by_block;  // whether scales differ along k
    bool fast;      // tensor cores may add up sums alone, in fewer digits than a float has
    const T* bias;
    T* y;
    int64_t rows, units, depth;
};
