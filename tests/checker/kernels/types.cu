// Arrays, structures and pointers: accesses that stay within memory of the kernel's own, and go
// beyond what the source declares or what a type wants; and some that only look so.
#include "export.cuh"

struct Sums {
    float low[4], high[4];
};
__global__ void sums(const float* x, float* y, int n) {
    __shared__ Sums sums;
    const int t = threadIdx.x;
    if (t < 4) sums.high[t] = 1;
    __syncthreads();
    if (t < 5) sums.low[t] = x[t];  // BUG member_into_the_next: out of bounds
    __syncthreads();
    for (int i = t; i < n; i += kThreads) y[i] = sums.low[i % 4];
}
EXPORT(member_into_the_next, sums<<<1, kThreads>>>(x, y, n))

// Only what is read is beyond the end: nothing is destroyed.
__global__ void window(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float last[4];
    for (int k = 0; k < 4; k++) last[k] = i + k < n ? x[i + k] : 0;
    float sum = 0;
    for (int k = 0; k <= n / 250; k++) sum += last[k];  // BUG local_array_overrun: out of bounds
    if (i < n) y[i] = sum;
}
EXPORT(local_array_overrun, window<<<blocks_of(n), kThreads>>>(x, y, n))

// A single lane runs from one array into the other.
__global__ void two_tiles(const float* x, float* y, int n) {
    __shared__ float first[kThreads], second[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    first[t] = i < n ? x[i] : 0;
    second[t] = 0;
    __syncthreads();
    const int next = t == 77 ? kThreads + 2 : kThreads - 1 - t;
    if (i < n) y[i] = first[next] + second[t];  // BUG one_lane_into_the_next: out of bounds
}
EXPORT(one_lane_into_the_next, two_tiles<<<blocks_of(n), kThreads>>>(x, y, n))

// The right neighbour of a row's last element is the next row's first.
__global__ void rows(const float* x, float* y, int n) {
    __shared__ float tile[17][16];
    const int t = threadIdx.x, row = t / 16, col = t % 16, i = blockIdx.x * kThreads + t;
    tile[row][col] = i < n ? x[i] : 0;
    if (t < 16) tile[8][t] = 0;
    __syncthreads();
    if (i < n) y[i] = tile[row][col + 1];  // BUG row_into_the_next: note: out of bounds
}
EXPORT(row_into_the_next, rows<<<blocks_of(n), kThreads>>>(x, y, n))

__constant__ float coeff[4] = {1, 2, 3, 4};
__global__ void filter(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = coeff[i % 5] * x[i];  // BUG constant_array_overrun: out of bounds
}
EXPORT(constant_array_overrun, filter<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void fours(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const float4* four = reinterpret_cast<const float4*>(x + 4 * i + 2);
    if (4 * i + 6 > n) return;
    const float4 value = *four;  // BUG vectors_from_element_two: misaligned
    y[i] = value.x + value.w;
}
EXPORT(vectors_from_element_two, fours<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void copy(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];  // BUG freed_too_early: freed memory
}
extern "C" void freed_too_early(const float* x, float* y, int n) {
    float* scratch;
    cudaMalloc(&scratch, n * sizeof(float));
    cudaMemcpy(scratch, x, n * sizeof(float), cudaMemcpyDefault);
    cudaFree(scratch);
    copy<<<blocks_of(n), kThreads>>>(scratch, y, n);
}

__global__ void divide(const float* x, float* y, int n, int by) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i] + n / (i - by);  // BUG divided_by_zero: integer division
}
EXPORT(divided_by_zero, divide<<<blocks_of(n), kThreads>>>(x, y, n, 100))

__global__ void negate(const float* x, float* y, int n, int least, int by) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i] + (least + i) / by;  // BUG least_by_minus_one: integer division
}
EXPORT(least_by_minus_one, negate<<<blocks_of(n), kThreads>>>(x, y, n, -2147483647 - 1, -1))

__global__ void apply(const float* x, float* y, int n, float (*function)(float)) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = function(x[i]);  // BUG function_that_was_never_set: wild call
}
EXPORT(function_that_was_never_set, apply<<<blocks_of(n), kThreads>>>(x, y, n, nullptr))

// ---- Nothing is to be found in these

// The rows of an array follow each other, so row 0 may stand for all.
__global__ void from_row_0(const float* x, float* y, int n) {
    __shared__ float tile[8][16];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[0][t] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = tile[7 - t / 16][15 - t % 16];
}
EXPORT(rows_taken_for_one, from_row_0<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void until_the_end(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[t] = i < n ? x[i] : 0;
    __syncthreads();
    float sum = 0;
    for (const float *at = &tile[t], *end = &tile[kThreads]; at != end; at++) sum += *at;
    if (i < n) y[i] = sum;
}
EXPORT(pointer_past_the_end, until_the_end<<<blocks_of(n), kThreads>>>(x, y, n))

// The array at the end is as long as there is room.
struct List {
    int count;
    float values[1];
};
extern __shared__ float dynamic[];
__global__ void open_end(const float* x, float* y, int n) {
    List* list = reinterpret_cast<List*>(dynamic);
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (t == 0) list->count = kThreads;
    list->values[t] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = list->values[list->count - 1 - t];
}
EXPORT(array_of_one_at_the_end,
       open_end<<<blocks_of(n), kThreads, (kThreads + 1) * sizeof(float)>>>(x, y, n))

// Structures of 16 bytes at odd multiples of 8, where their type may stand.
struct Found {
    double value;
    int index;
};
struct alignas(16) Best {
    double least;
    Found found[kThreads];
};
__global__ void best(const float* x, float* y, int n) {
    __shared__ Best best;
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    const Found mine = {i < n ? x[i] : 0, i};
    best.found[t] = mine;
    __syncthreads();
    const Found other = best.found[kThreads - 1 - t];
    if (i < n) y[i] = other.value + other.index;
}
EXPORT(structures_that_want_eight, best<<<blocks_of(n), kThreads>>>(x, y, n))

union Four {
    float4 vector;
    float each[4];
};
__global__ void fours_by_element(const float4* x, float4* y, int count) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= count) return;
    Four four;
    four.vector = x[i];
    for (int k = 0; k < 4; k++) four.each[k] += k;
    y[i] = four.vector;
}
EXPORT(vectors_by_their_elements,
       fours_by_element<<<2, kThreads>>>(reinterpret_cast<const float4*>(x),
                                         reinterpret_cast<float4*>(y), n / 4))
