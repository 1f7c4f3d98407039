// What the tensor-core rungs of attention share: a thread's part of the online softmax, and the way
// from accumulators to an operand and to memory.
//
// Accumulators [rows, N] are where mma.sync and wgmma put them: a thread has two rows, r and r + 8,
// and of each of them columns 8 j + c and 8 j + c + 1, where c is lane % 4 * 2:
//
//   accum[4 j], accum[4 j + 1]          of the upper row, number 0
//   accum[4 j + 2], accum[4 j + 3]      of the lower row, number 1
//
// Four neighbouring lanes, a quad, share both rows.
#pragma once

#include <cuda_bf16.h>
#include "mma.cuh"
#include "rows.cuh"

using T = nv_bfloat16;

__device__ inline float quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffff, value, 2));
}
__device__ inline float quad_sum(float value) {
    value += __shfl_xor_sync(0xffffffff, value, 1);
    return value + __shfl_xor_sync(0xffffffff, value, 2);
}

// The online softmax of a thread's two rows. Powers are 2^(scale s - m): scale holds log2(e).
struct OnlineSoftmax {
    float scale, row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};

    // Turns the scores of a tile into powers. factor: what earlier powers shrink by.
    template <int N>
    __device__ void take(float (&s)[N], float (&factor)[2]) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float new_max = row_max[row];
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (i / 2 % 2 == row) new_max = fmaxf(new_max, s[i]);
            new_max = quad_max(new_max);
            factor[row] = quick_power_of_2(scale * (row_max[row] - new_max));
            row_max[row] = new_max;
            row_sum[row] *= factor[row];
#pragma unroll
            for (int i = 0; i < N; ++i) {
                if (i / 2 % 2 != row) continue;
                s[i] = quick_power_of_2(scale * s[i] - scale * new_max);
                row_sum[row] += s[i];
            }
        }
    }

    // At the end: 1 / the sum of all powers, which until then each lane has of its own columns.
    __device__ void finish(float (&factor)[2]) {
#pragma unroll
        for (int row = 0; row < 2; ++row) factor[row] = 1 / (row_sum[row] = quad_sum(row_sum[row]));
    }
    // log2 of the sum of e^score. Backward needs no more to compute a row's weights again.
    __device__ float lse(int row) const { return scale * row_max[row] + log2f(row_sum[row]); }
};

template <int N>
__device__ void scale_rows(float (&accum)[N], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < N; ++i) accum[i] *= factor[i / 2 % 2];
}

// Accumulators of 16 columns, rounded, are the a operand of a product over 16 of k.
template <int N>
__device__ void to_operand(uint32_t (&a)[N / 2], const float (&accum)[N]) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) a[i] = rounded_pair<T>(accum[2 * i], accum[2 * i + 1]);
}

// Stores a warp's 16 rows of accumulators; y: the first of them.
template <int N>
__device__ void store_rows(T* y, const float (&accum)[N]) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        T* const to = y + (lane / 4 + i / 2 % 2 * 8) * (2 * N) + i / 4 * 8 + lane % 4 * 2;
        *reinterpret_cast<uint32_t*>(to) = rounded_pair<T>(accum[i], accum[i + 1]);
    }
}
