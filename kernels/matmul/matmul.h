// Which product the binding of matmul asks its kernels for.
#pragma once

#include "types.h"

// What y is of z, by the numbers of matmul.py.
enum Act : int64_t { kNone, kRelu, kGelu, kSilu, kSwiglu };

// Numbers as in matmul.py.
struct MatmulVersion {
    enum : int64_t {
        kNaive,
        kTiles,
        kRegisters,
        kMma,
        kWgmma,
        kSpecialized,
        kCluster,
        kStores,
        kCount
    };
};

// `batch` matrices anywhere in memory: the strides from one to the next, from row to row and from
// column to column, in elements.
template <class T>
struct Operand {
    const T* data;
    int64_t matrix, row, col;
};

// Shapes as matmul.cu has them; bias, residual and z may be null.
template <class T>
struct Product {
    Operand<T> x, w;
    const T *bias, *residual;
    T *y, *z;
    int64_t batch, rows, units, depth;
    Acc<T> scale;
    Act act;
    float* workspace;  // of split-K (matmul_split_k.cuh); may be null
    float* copies;     // of x and w, rounded to tf32 (matmul_tf32.cuh); may be null
    bool tf32;         // floats may be rounded to tf32, so that tensor cores can multiply them
};

// Rows of `batch` matrices, `bytes` wide and anywhere in memory, and where they are copied to:
// `stride` bytes apart, a multiple of 16, with zeros behind each. Other strides in bytes, too.
struct RowsToAlign {
    const uint8_t* from;
    uint8_t* to;
    int64_t batch, rows, bytes, from_matrix, from_row, stride;
};
