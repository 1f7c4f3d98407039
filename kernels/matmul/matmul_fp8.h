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

// Whether a product has so few rows that they have a kernel of their own, with tiles of 64 units.
// With more than 32, tiles of 128 x 128 are as fast where those would leave two fifths of the
// multiprocessors idle in their last wave. Measured on an H200.
inline bool is_for_few_float8_rows(int64_t rows, int64_t units, bool fast, int processors) {
    if (rows > 64) return false;
    const int64_t tiles = (units + 63) / 64, waves = (tiles + processors - 1) / processors;
    return rows <= 32 || fast || waves == 1 || 5 * tiles >= 3 * waves * processors;
}
