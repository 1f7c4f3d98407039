// Which product the binding of grouped_matmul asks its kernels for.
#pragma once

#include "matmul.h"

// Numbers as in grouped_matmul.py.
struct GroupedVersion {
    enum : int64_t { kNaive, kTiles, kRegisters, kMma, kWgmma, kCount };
};

// The groups that rows are sorted by, one for each expert: group g has the rows before ends[g] and
// from the end of the group before it on.
struct Groups {
    const int32_t* ends;  // [count + 1] on the device; behind the ends stands `count`, or 0 where
                          // the offsets are wrong
    int64_t count;
};

// What is grouped: the rows of x and y, or the depth, where y has a matrix for each group.
enum class Grouped { kRows, kDepth };
