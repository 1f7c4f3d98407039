// Kernels that use arrays, structures and pointers as one may, and look as if they did not: the
// checker must find nothing. Every function takes (const float* x, float* y, int n) with n = 1000.

#include "export.cuh"

constexpr int kThreads = 128;

inline int blocks_of(int n) { return (n + kThreads - 1) / kThreads; }

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
__global__ void fours(const float4* x, float4* y, int count) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= count) return;
    Four four;
    four.vector = x[i];
    for (int k = 0; k < 4; k++) four.each[k] += k;
    y[i] = four.vector;
}
EXPORT(vectors_by_their_elements, fours<<<2, kThreads>>>(reinterpret_cast<const float4*>(x),
                                                         reinterpret_cast<float4*>(y), n / 4))
