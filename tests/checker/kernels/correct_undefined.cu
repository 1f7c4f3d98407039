// Kernels that declare variables without a value, or read what nobody has set, and use none of it:
// the checker must find nothing. Every function takes (const float* x, float* y, int n) with
// n = 1000.

#include <cuda_fp16.h>
#include <stdio.h>
#include "export.cuh"

constexpr int kThreads = 128;

inline int blocks_of(int n) { return (n + kThreads - 1) / kThreads; }

// Loaded under a mask, computed with, and stored under the mask.
__global__ void masked(const float* x, float* y, int n) {
    const int first = 7 * (blockIdx.x * kThreads + threadIdx.x);
    float v[7], twice[7];
    for (int k = 0; k < 7; k++)
        if (first + k < n) v[k] = x[first + k];
    for (int k = 0; k < 7; k++) twice[k] = 2 * v[k];
    for (int k = 0; k < 7; k++)
        if (first + k < n) y[first + k] = twice[k];
}
EXPORT(loaded_under_a_mask, masked<<<blocks_of(n), kThreads>>>(x, y, n))

struct Padded {
    float value;
    char flag;
};
union Bits {
    float number;
    unsigned bits;
};
__device__ void load(float& to, const float* from) { to = *from; }
template <class T>
__device__ T twice(T x) {
    T result;
    result = x + x;
    return result;
}
// Set by helpers, by asm, in every branch, member by member; structures with padding are copied.
__global__ void set_in_many_ways(const float* x, float* y, Padded* copies, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    float a, b, c, unused;
    unsigned lane, d, rows[2][2];
    Padded padded;
    Bits bits;
    float4 four;
    load(a, x + i);
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    if (lane < 16)
        b = 1;
    else
        b = 2;
    switch (i % 3) {
        case 0:
            c = 1;
            break;
        case 1:
            c = 2;
            break;
        default:
            c = 3;
    }
    for (d = 0; d < 3; d++) rows[d / 2][d % 2] = d;
    padded.value = a, padded.flag = 'x';
    Padded same = padded;
    copies[i] = same;
    bits.number = twice(a);
    four.x = four.y = four.z = four.w = 1;
    (void)unused;
    y[i] = a + b + c + float(rows[1][0] + bits.bits % 2) + four.w + same.value;
}
extern "C" void set_in_many_ways_all(const float* x, float* y, int n) {
    Padded* copies;
    cudaMalloc(&copies, n * sizeof(Padded));
    set_in_many_ways<<<blocks_of(n), kThreads>>>(x, y, copies, n);
    cudaFree(copies);
}

// The upper lanes of a shuffle down get what they do not use.
__global__ void warp_sums(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x, lane = threadIdx.x % 32;
    float v = i < n ? x[i] : 0;
    if (lane < 16) {
        for (int step = 8; step > 0; step /= 2) v += __shfl_down_sync(0x0000ffff, v, step);
    }
    if (i < n) y[i] = lane == 0 ? v : 0;
}
EXPORT(sums_of_the_lower_lanes, warp_sums<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void neighbours(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    const float v = x[i], next = __shfl_down_sync(0xffffffff, v, 1);
    y[i] = i + 1 < n && threadIdx.x % 32 != 31 ? next - v : 0;
}
EXPORT(neighbours_but_the_last, neighbours<<<blocks_of(n), kThreads>>>(x, y, n))

// Half of each pair is set, and read, and used.
__global__ void halves_of_pairs(const float* x, float* y, int n) {
    __shared__ float2 pair[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    pair[t].x = i < n ? x[i] : 0;
    __syncthreads();
    const float2 other = pair[kThreads - 1 - t];
    const float both = other.x + other.y;
    if (i < n) y[i] = t < 0 ? both : other.x;
}
EXPORT(half_of_each_pair_is_used, halves_of_pairs<<<blocks_of(n), kThreads>>>(x, y, n))

// Which run differently each time: by the clock, by memory of their own, by what they print.
__device__ unsigned tickets;
__global__ void timed(const float* x, float* y, long long* times, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float unused[3];
    const long long begun = clock64();
    if (i == 0) printf("once\n");
    float* mine = new float[2];
    mine[0] = i < n ? x[i] : 0;
    if (threadIdx.x == 0) atomicAdd(&tickets, 1);
    if (i < n) y[i] = mine[0];
    delete[] mine;
    if (i < n) times[i] = clock64() - begun;
}
extern "C" void runs_differ(const float* x, float* y, int n) {
    long long* times;
    cudaMalloc(&times, n * sizeof *times);
    timed<<<blocks_of(n), kThreads>>>(x, y, times, n);
    cudaFree(times);
}

// A row moves through three places of an array; the first of them is copied before it is set.
__global__ void moved_rows(const float* x, float* y, int n) {
    __shared__ float rows[3][kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    rows[2][t] = i < n ? x[i] : 0;
    for (int k = 0; k < 3; k++) {
        rows[0][t] = rows[1][t];
        rows[1][t] = rows[2][t];
        rows[2][t] = k;
        __syncthreads();
        if (i < n) y[i] = k < 2 ? rows[1][t] : rows[0][t] + rows[1][t];
        __syncthreads();
    }
}
extern "C" void unset_row_is_moved(const float* x, float* y, int n) {
    moved_rows<<<blocks_of(n), kThreads>>>(x, y, n);
    moved_rows<<<blocks_of(n), kThreads>>>(x, y, n);
}

// Who returns early, from the kernel or a function, is not waited for.
__device__ float lane_below(float v, int lane) {
    if (lane == 0) return v;
    return v + __shfl_sync(0xfffffffe, v, max(lane - 1, 1));
}
__device__ void tell(float* place, float v) {
    if (threadIdx.x >= 40) return;
    *place = v;
    __syncthreads();
}
__global__ void early_returns(const float* x, float* y, int n) {
    __shared__ float tile[40];
    const int i = blockIdx.x * 50 + threadIdx.x;
    if (threadIdx.x >= 50 || i >= n) return;
    y[i] = lane_below(x[i], threadIdx.x % 32);
    tell(tile + threadIdx.x % 40, x[i]);
}
EXPORT(some_return_early, early_returns<<<(n + 49) / 50, 64>>>(x, y, n))

// A structure may be copied with a member that nobody has set, as long as nobody computes with it.
struct Sample {
    float value;
    int count[3];
};
union Word {
    float one;
    unsigned short halves[2];
};
__global__ void parts_of_structures(const float* x, float* y, Sample* all, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    Sample sample, copy;
    sample.value = x[i];
    sample.count[1] = 1;
    copy = sample;
    all[i] = copy;
    Word word;
    word.one = all[i].value;
    Sample later;
    for (int k = 0; k < 3; k++) later.count[k] = k;
    if (n > 0) later.value = word.one;
    y[i] = later.value * later.count[2] + copy.count[1];
}
extern "C" void structure_set_in_part(const float* x, float* y, int n) {
    Sample* all;
    cudaMalloc(&all, n * sizeof *all);
    parts_of_structures<<<blocks_of(n), kThreads>>>(x, y, all, n);
    cudaFree(all);
}

// What has no value is left out where its weight is 0.
__global__ void weighed(const float* x, float* y, int n) {
    float kept[8];
    for (int k = 0; k < 4; k++) kept[k] = x[k];
    float sum = 0;
    for (int k = 0; k < 8; k++)
        if (const float weight = k < 4) sum += kept[k] * weight;
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = sum;
}
EXPORT(zero_weights, weighed<<<blocks_of(n), kThreads>>>(x, y, n))
