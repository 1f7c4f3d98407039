// Floats of one byte, for bindings and kernels: torch.float8_e4m3fn, the e4m3 of PTX.
#pragma once

#include "types.h"

// A sign, 4 bits of exponent, 3 of fraction. The largest number is 448; there is no infinity, and
// 0x7f and 0xff are NaN. float8.cuh converts them.
struct Float8 {
    uint8_t bits;
};

// What shares a scale: everything; a row; 128 neighbours of a row; 128 x 128 elements. By the
// numbers of quantize.py.
enum Scaling : int64_t { kPerTensor, kPerRow, kPer1x128, kPer128x128 };
constexpr int kScaleBlock = 128;
