// Tensors with heads, [batches, heads, rows, cols], that need not be contiguous.
#pragma once

#include <stdint.h>

// Elements from one batch, head or row to the next. Neighbours in a row are always side by side.
struct Strides {
    int64_t batch, head, row;
};
