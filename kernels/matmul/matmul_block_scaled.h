// What the binding of matmul_block_scaled hands to its kernels.
#pragma once

#include "types.h"

// A matrix [rows, cols] in MXFP8 or NVFP4, of which a row begins row_bytes after the one before.
// The scales of whole tensors may be null, for 1.
struct ScaledOperand {
    const uint8_t* q;
    int64_t row_bytes;
    const uint8_t* scales;
    const float *x_scale, *w_scale;
    int64_t rows, cols;
    bool is_nvfp4;
};
