// Planted uses of what nobody has set: local variables, lanes that take no part in a shuffle, parts
// of what is read from memory. Every function takes (const float* x, float* y, int n) with n =
// 1000; a line that is wrong ends with BUG, the function and what the checker must say of it there.

#include <cuda_fp16.h>
#include "export.cuh"

constexpr int kThreads = 128;

inline int blocks_of(int n) { return (n + kThreads - 1) / kThreads; }

__global__ void add_up(const float* x, float* y, int n) {
    float sum;  // BUG never_set_accumulator: uninitialised
    for (int i = threadIdx.x; i < n; i += kThreads) sum += x[i];
    for (int i = threadIdx.x; i < n; i += kThreads) y[i] = sum;
}
EXPORT(never_set_accumulator, add_up<<<1, kThreads>>>(x, y, n))

__global__ void largest_of(const float* x, float* y, int n) {
    float largest;  // BUG never_set_maximum: uninitialised
    for (int k = 0; k < n; k++) largest = fmaxf(largest, x[k]);
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = largest;
}
EXPORT(never_set_maximum, largest_of<<<blocks_of(n), kThreads>>>(x, y, n))

template <class T, int kRows>
__device__ T sum_of(const float* x, int n) {
    T sums[kRows][2];  // BUG never_set_array: uninitialised
    for (int k = 0; k < n; k++) sums[k % kRows][k % 2] += T(x[k]);
    return sums[0][0] + sums[kRows - 1][1];
}
__global__ void sum_rows(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = sum_of<__half, 2>(x, n);
}
EXPORT(never_set_array, sum_rows<<<blocks_of(n), kThreads>>>(x, y, n))

// Three of four are set, and all are used.
__global__ void fours(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float4 v;  // BUG three_of_four: uninitialised
    v.x = v.y = v.z = i < n ? x[i] : 0;
    if (i < n) y[i] = v.x + v.y + v.z + v.w;
}
EXPORT(three_of_four, fours<<<blocks_of(n), kThreads>>>(x, y, n))

// The last thread leaves the loop without having found a place.
__global__ void first_positive(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    int at;  // BUG never_set_index: uninitialised
    for (int k = i; k < n; k++)
        if (x[k] > 1) at = k;
    if (i < n) y[i] = x[at];
}
EXPORT(never_set_index, first_positive<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void flagged(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    bool is_large;  // BUG never_set_flag: uninitialised
    if (i < n && x[i] > 0) is_large = true;
    if (i < n) y[i] = is_large ? 1 : 2;
}
EXPORT(never_set_flag, flagged<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void sum_of_warps(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int step = 16; step > 0; step /= 2)
        v += __shfl_down_sync(0xffffffff, v, step);  // BUG returned_lanes: inactive lane
    y[i] = i % 32 == 0 ? v : 0;
}
EXPORT(returned_lanes, sum_of_warps<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void sum_of_halves(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x, lane = threadIdx.x % 32;
    float v = i < n ? x[i] : 0;
    if (lane < 16) v += __shfl_down_sync(0x0000ffff, v, 16);  // BUG lanes_outside: inactive lane
    if (i < n) y[i] = v;
}
EXPORT(lanes_outside, sum_of_halves<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void pairs(const float* x, float* y, int n) {
    __shared__ float2 pair[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    pair[t].x = i < n ? x[i] : 0;
    __syncthreads();
    const float2 other = pair[kThreads - 1 - t];  // BUG half_of_each_pair: uninitialised
    if (i < n) y[i] = other.x + other.y;
}
EXPORT(half_of_each_pair, pairs<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void write_first(const float* x, float2* scratch, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float second;  // BUG through_scratch: uninitialised
    if (i < n) scratch[i] = make_float2(x[i], second);
}
__global__ void read_both(const float2* scratch, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = scratch[i].x * scratch[i].y;
}
extern "C" void through_scratch(const float* x, float* y, int n) {
    float2* scratch;
    cudaMalloc(&scratch, n * sizeof(float2));
    write_first<<<blocks_of(n), kThreads>>>(x, scratch, n);
    read_both<<<blocks_of(n), kThreads>>>(scratch, y, n);
    cudaFree(scratch);
}

// Of any other value of the rest than infinity and NaN, a weight of 0 would leave nothing.
__global__ void weighed(const float* x, float* y, int n) {
    float kept[8];  // BUG times_zero: uninitialised
    for (int k = 0; k < 4; k++) kept[k] = x[k];
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += kept[k] * (n - 1000);
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = sum;
}
EXPORT(times_zero, weighed<<<blocks_of(n), kThreads>>>(x, y, n))
