// What blocks sort, scan, multiply and meet by, for the kernels with bugs and those without.
#pragma once
#include <cooperative_groups.h>
#include "export.cuh"

constexpr int kWarps = kThreads / kWarp;
constexpr int kDigits = 16;
constexpr int kSide = 16;  // of a stencil's tile
constexpr int kRows = 32;  // and columns, of a product

// Of all blocks at once, that may wait for each other.
template <class T>
void cooperate(void (*kernel)(const float*, float*, T*, int), const float* x, float* y, T* more,
               int n) {
    void* arguments[] = {&x, &y, &more, &n};
    cudaLaunchCooperativeKernel(
        reinterpret_cast<void*>(kernel), blocks_of(n), kThreads, arguments, 0, nullptr);
}

// ---- Scans and sorts of a block

__device__ float scan_of_warp(float value) {
    for (int d = 1; d < kWarp; d *= 2) {
        const float left = __shfl_up_sync(~0u, value, d);
        if (threadIdx.x % kWarp >= d) value += left;
    }
    return value;
}

struct Scan {
    float of_warps[kWarps];
};
// Who calls it again has a barrier between.
__device__ float scan_of_block(Scan& scan, float value) {
    const int warp = threadIdx.x / kWarp;
    float sum = scan_of_warp(value);
    if (threadIdx.x % kWarp == kWarp - 1) scan.of_warps[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++) sum += scan.of_warps[w];
    return sum;
}

// Of counters where the keys of each warp begin. The first lanes of a warp call it, one a digit.
__device__ void place_digits(unsigned (&counts)[kWarps][kDigits], int digit) {
    unsigned sum = 0;
    for (int w = 0; w < kWarps; w++) {
        const unsigned count = counts[w][digit];
        counts[w][digit] = sum;
        sum += count;
    }
    unsigned before = sum;
    for (int d = 1; d < kDigits; d *= 2) {
        const unsigned left = __shfl_up_sync((1u << kDigits) - 1, before, d);
        if (digit >= d) before += left;
    }
    for (int w = 0; w < kWarps; w++) counts[w][digit] += before - sum;
}

// ---- Tiles

__device__ void add_products(float (&c)[4][4], float4 a, float4 b) {
    const float of_a[] = {a.x, a.y, a.z, a.w}, of_b[] = {b.x, b.y, b.z, b.w};
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++) c[r][s] += of_a[r] * of_b[s];
}

// ---- Blocks that meet, and blocks that look back

// Until so many have arrived, in all.
__device__ void meet_by_hand(unsigned* arrived, unsigned wanted) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (*reinterpret_cast<volatile unsigned*>(arrived) < wanted) {
        }
        __threadfence();
    }
    __syncthreads();
}

// A sum, and whether it is that of a block or of all up to it.
enum State : unsigned { kNone, kOwn, kAll };
__device__ unsigned long long word_of(State state, float sum) {
    return (unsigned long long)(state) << 32 | __float_as_uint(sum);
}
__device__ State state_of(unsigned long long word) { return State(word >> 32); }
__device__ float sum_of(unsigned long long word) { return __uint_as_float(unsigned(word)); }
