// Which product the binding of matmul_w8a16 asks its kernels for.
#pragma once

#include "matmul_fp8.h"

// Numbers as in matmul_w8a16.py.
struct Int8Version {
    enum : int64_t { kNaive, kMma, kFewRows, kWgmma, kCount };
};

// Shapes as matmul_w8a16.cu has them; bias may be null.
template <class T>
struct Int8Product {
    Operand<T> x;
    Operand<int8_t> w;
    Scales w_scale;
    bool by_block;  // whether scales differ along k
    const T* bias;
    T* y;
    int64_t rows, units, depth;
};
