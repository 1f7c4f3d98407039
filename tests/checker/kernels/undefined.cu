// What nobody has set: local variables, lanes that take no part in a shuffle, parts of what is
// read from memory.
#include <cuda_fp16.h>
#include <stdio.h>
#include "export.cuh"

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

// ---- Nothing is to be found in these

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
__global__ void left_out_at_0(const float* x, float* y, int n) {
    float kept[8];
    for (int k = 0; k < 4; k++) kept[k] = x[k];
    float sum = 0;
    for (int k = 0; k < 8; k++)
        if (const float weight = k < 4) sum += kept[k] * weight;
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = sum;
}
EXPORT(zero_weights, left_out_at_0<<<blocks_of(n), kThreads>>>(x, y, n))
