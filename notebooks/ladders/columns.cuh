// A row whose columns the threads of a block share, as the short versions of the ladders have it.
#pragma once

#include "rows.cuh"

constexpr int kColumns = 8;  // of a thread: two vectors of 16 bytes

// A block of `threads` threads takes rows of kColumns * threads floats. BlockReduce adds up over
// whole warps, of which it takes 16 at most.
inline bool fits(int cols) {
    return cols > 0 && cols % (kColumns * kWarp) == 0 && cols <= kColumns * 16 * kWarp;
}

// The first column of a thread's n-th vector: neighbouring threads have neighbouring vectors.
__device__ inline int column_of(int n) { return (n * blockDim.x + threadIdx.x) * 4; }

__device__ inline void load_columns(const float* row, float (&mine)[kColumns]) {
    for (int n = 0; n < kColumns / 4; ++n) {
        const Vec<float, 4> v = load<4>(row + column_of(n));
        for (int k = 0; k < 4; ++k) mine[4 * n + k] = v[k];
    }
}

__device__ inline void store_columns(float* row, const float (&mine)[kColumns]) {
    for (int n = 0; n < kColumns / 4; ++n) {
        Vec<float, 4> v;
        for (int k = 0; k < 4; ++k) v[k] = mine[4 * n + k];
        store(row + column_of(n), v);
    }
}
