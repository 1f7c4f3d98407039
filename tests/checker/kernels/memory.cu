// Planted accesses of what is not there, not yet there, or not where a vector may stand.
#include "export.cuh"

// ---- out of bounds

__global__ void copy_all(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    y[i] = x[i];  // BUG no_test_of_the_tail: out of bounds
}
EXPORT(no_test_of_the_tail, copy_all<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void copy_one_more(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i <= n) y[i] = 1;  // BUG off_by_one: out of bounds
}
EXPORT(off_by_one, copy_one_more<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void difference(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i] - x[i - 1];  // BUG before_the_beginning: out of bounds
}
EXPORT(before_the_beginning, difference<<<blocks_of(n), kThreads>>>(x, y, n))

// x as 25 rows of 40, read as if it were 40 rows of 25.
__global__ void transpose(const float* x, float* y, int rows, int cols) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= rows * cols) return;
    const int row = i / cols, col = i % cols;
    y[i] = x[row * rows + col];  // BUG wrong_stride: out of bounds
}
EXPORT(wrong_stride, transpose<<<blocks_of(n), kThreads>>>(x, y, n / 25, 25))

__global__ void copy_fours(const float4* x, float4* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i <= n / 4) y[i] = x[i];  // BUG vector_over_the_tail: out of bounds
}
EXPORT(vector_over_the_tail,
       copy_fours<<<blocks_of(n / 4), kThreads>>>(reinterpret_cast<const float4*>(x),
                                                  reinterpret_cast<float4*>(y), n))

__global__ void past_new_memory(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    float* own = new float[4];
    for (int k = 0; k < 4; ++k) own[k] = x[i];
    y[i] = own[i % 4 + 1];  // BUG new_array_too_small: out of bounds
    delete[] own;
}
EXPORT(new_array_too_small, past_new_memory<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void after_free(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    auto* own = static_cast<float*>(malloc(sizeof(float)));
    *own = x[i];
    free(own);
    y[i] = *own;  // BUG memory_given_back: out of bounds
}
EXPORT(memory_given_back, after_free<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void padded_tile(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (i < n) tile[t + 1] = x[i];  // BUG shared_array_too_small: out of bounds
    __syncthreads();
    if (i < n) y[i] = tile[t + 1];
}
EXPORT(shared_array_too_small, padded_tile<<<blocks_of(n), kThreads>>>(x, y, n))

extern __shared__ float dynamic[];
__global__ void dynamic_tile(const float* x, float* y, int n) {
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (i < n) dynamic[t] = x[i];  // BUG too_few_dynamic_bytes: out of bounds
    __syncthreads();
    if (i < n) y[i] = dynamic[t];
}
EXPORT(too_few_dynamic_bytes, dynamic_tile<<<blocks_of(n), kThreads, kThreads * 2>>>(x, y, n))

// The left neighbour of thread 0 is no element of the tile.
__global__ void left_halo(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[t] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = tile[t] - tile[t - 1];  // BUG left_of_the_tile: out of bounds
}
EXPORT(left_of_the_tile, left_halo<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void copy_bytes(const float* x, float* y, int bytes) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < bytes) y[i] = x[i];  // BUG bytes_taken_for_elements: out of bounds
}
EXPORT(bytes_taken_for_elements,
       copy_bytes<<<blocks_of(2 * n), kThreads>>>(x, y, n * sizeof(float)))

// Rows of 30 columns: the last row has 10.
__global__ void by_rows(const float* x, float* y, int rows, int cols) {
    const int col = threadIdx.x, row = blockIdx.x;
    if (row < rows && col < cols) y[row * cols + col] = 1;  // BUG last_row_not_full: out of bounds
}
EXPORT(last_row_not_full, by_rows<<<(n + 29) / 30, 32>>>(x, y, (n + 29) / 30, 30))

__global__ void gather(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    const int from = int(x[i] * 100);
    y[i] = x[from];  // BUG index_may_be_negative: out of bounds
}
EXPORT(index_may_be_negative, gather<<<blocks_of(n), kThreads>>>(x, y, n))

// ---- uninitialised

// Scratch memory comes with whatever was there.
__global__ void accumulate(const float* x, float* scratch, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) scratch[i] += x[i];  // BUG scratch_not_cleared: uninitialised
}
__global__ void copy_out(const float* scratch, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = scratch[i];
}
extern "C" void scratch_not_cleared(const float* x, float* y, int n) {
    float* scratch;
    cudaMalloc(&scratch, n * sizeof(float));
    accumulate<<<blocks_of(n), kThreads>>>(x, scratch, n);
    copy_out<<<blocks_of(n), kThreads>>>(scratch, y, n);
    cudaFree(scratch);
}

__global__ void both_halos(const float* x, float* y, int n) {
    __shared__ float tile[kThreads + 2];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[t + 1] = i < n ? x[i] : 0;
    if (t == 0) tile[0] = 0;
    __syncthreads();
    if (i < n) y[i] = tile[t] + tile[t + 1] + tile[t + 2];  // BUG right_halo_missing: uninitialised
}
EXPORT(right_halo_missing, both_halos<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void half_a_tile(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (t < kThreads / 2 && i < n) tile[t] = x[i];
    __syncthreads();
    if (i < n) y[i] = tile[t];  // BUG half_a_tile_filled: uninitialised
}
EXPORT(half_a_tile_filled, half_a_tile<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void counter(const float* x, float* y, int n) {
    __shared__ int positive;
    const int t = threadIdx.x;
    for (int i = t; i < n; i += kThreads)
        if (x[i] > 0) atomicAdd(&positive, 1);  // BUG counter_not_set_to_zero: uninitialised
    __syncthreads();
    for (int i = t; i < n; i += kThreads) y[i] = positive;
}
EXPORT(counter_not_set_to_zero, counter<<<1, kThreads>>>(x, y, n))

struct Moments {
    float mean, square;
    int counts[4];
};
__device__ void set_mean(Moments& moments, float mean) { moments.mean = mean; }
__global__ void member(const float* x, float* y, int n) {
    Moments moments;
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    set_mean(moments, x[i]);
    y[i] = moments.mean + moments.square;  // BUG member_not_set: uninitialised
}
EXPORT(member_not_set, member<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void last_of_array(const float* x, float* y, int n) {
    Moments moments;
    const int i = blockIdx.x * kThreads + threadIdx.x;
    for (int k = 0; k < 3; k++) moments.counts[k] = k;
    if (i >= n) return;
    moments.mean = x[i];
    int sum = 0;
    for (int k = 0; k < 4; k++) sum += moments.counts[k];
    y[i] = moments.mean * sum;  // BUG member_array_not_set_to_its_end: uninitialised
}
EXPORT(member_array_not_set_to_its_end, last_of_array<<<blocks_of(n), kThreads>>>(x, y, n))

// ---- unwritten

__global__ void whole_blocks(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];  // BUG blocks_rounded_down: unwritten
}
EXPORT(blocks_rounded_down, whole_blocks<<<n / kThreads, kThreads>>>(x, y, n))

__global__ void whole_fours(const float4* x, float4* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n / 4) y[i] = x[i];  // BUG tail_of_the_vectors: unwritten
}
EXPORT(tail_of_the_vectors,
       whole_fours<<<blocks_of(n / 4), kThreads>>>(reinterpret_cast<const float4*>(x),
                                                   reinterpret_cast<float4*>(y), n - 2))

__global__ void two_apart(const float* x, float* y, int n) {
    for (int i = 2 * threadIdx.x; i < n; i += 2 * kThreads) {
        y[i] = x[i];  // BUG every_second_element: unwritten
    }
}
EXPORT(every_second_element, two_apart<<<1, kThreads>>>(x, y, n))

__global__ void skips_zero(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n && (x[i] < -0.5f || x[i] > 0.5f)) y[i] = x[i];  // BUG no_else: unwritten
}
EXPORT(no_else, skips_zero<<<blocks_of(n), kThreads>>>(x, y, n))

// ---- misaligned

__global__ void pairs(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const float2* in = reinterpret_cast<const float2*>(x + 1);
    if (2 * i + 2 >= n) return;
    const float2 pair = in[i];  // BUG odd_pairs: misaligned
    y[i] = pair.x + pair.y;
}
EXPORT(odd_pairs, pairs<<<blocks_of(n / 2), kThreads>>>(x, y, n))

// Floats, and then doubles, in one dynamic array: an odd number of floats shifts the doubles.
__global__ void two_arrays(const float* x, float* y, int n) {
    double* doubles = reinterpret_cast<double*>(dynamic + 33);
    doubles[threadIdx.x] = x[threadIdx.x];  // BUG doubles_after_odd_floats: misaligned
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kThreads) y[i] = doubles[i % kThreads];
}
EXPORT(doubles_after_odd_floats,
       two_arrays<<<1, kThreads, 33 * sizeof(float) + kThreads * sizeof(double)>>>(x, y, n))

__global__ void shifted_fours(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float4* four = reinterpret_cast<float4*>(y + 4 * i + 1);
    if (4 * i + 5 <= n)
        *four = make_float4(i, n, n, i);  // BUG vectors_from_element_one: misaligned
}
EXPORT(vectors_from_element_one, shifted_fours<<<blocks_of(n), kThreads>>>(x, y, n))

// The second array begins where the first one ends, or the other way round.
__global__ void two_tiles(const float* x, float* y, int n) {
    __shared__ float first[64], second[64];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (t < 64) second[t] = 0;
    if (t < 64) first[t] = 0;
    __syncthreads();
    float seen = 0;
    if (t < 32) {
        seen = first[t + 48] + second[t + 48];  // BUG from_one_array_into_the_next: out of bounds
    }
    if (i < n) y[i] = x[i] + seen;
}
EXPORT(from_one_array_into_the_next, two_tiles<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void pairs_of_bytes(const float* x, float* y, int n) {
    __shared__ unsigned char bytes[8 * kThreads + 8];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    for (int k = t; k < 8 * kThreads + 8; k += kThreads) bytes[k] = k;
    __syncthreads();
    const uint2* pairs = reinterpret_cast<const uint2*>(bytes + 4);
    const uint2 pair = pairs[t];  // BUG pair_of_bytes: misaligned
    if (i < n) y[i] = pair.x + pair.y + x[i];
}
EXPORT(pair_of_bytes, pairs_of_bytes<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void word_of_bytes(const float* x, float* y, int n) {
    __shared__ unsigned char bytes[4 * kThreads + 4];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    for (int k = t; k < 4 * kThreads + 4; k += kThreads) bytes[k] = k;
    __syncthreads();
    const int* words = reinterpret_cast<const int*>(bytes + 1);
    const int word = words[t];  // BUG word_at_an_odd_byte: misaligned
    if (i < n) y[i] = word + x[i];
}
EXPORT(word_at_an_odd_byte, word_of_bytes<<<blocks_of(n), kThreads>>>(x, y, n))
