// Sums across threads. The order is fixed, so the bits are the same on every run.
#pragma once

#include "vec.cuh"

// One thread's sum of many numbers. Each addition rounds; what it lost goes into the next (Kahan),
// so that the error stays that of a few roundings however long the chain.
template <class A>
struct LongSum {
    A value = 0, lost = 0;
    __device__ void operator+=(A a) {
        const A more = a - lost;
        const A sum = value + more;
        lost = sum - sum == 0 ? (sum - value) - more : A(0);  // of an infinite sum nothing is lost
        value = sum;
    }
};

constexpr int kWarp = 32;

// So many threads, or the next number of them that is whole warps.
inline int64_t whole_warps(int64_t threads) { return ceil_div<int64_t>(threads, kWarp) * kWarp; }

// The sum over the warp, or over each group of 1, 2, 4 ... lanes of it, in every lane. Each step
// adds the lane whose number differs in one bit. All five steps are always there: without a loop of
// unknown length, sums of several things go on side by side.
template <class A>
__device__ A warp_sum(A value, int lanes = kWarp) {
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        const A other = __shfl_xor_sync(0xffffffff, value, bit);
        if (bit < lanes) value += other;
    }
    return value;
}

// Blocks here are (threads of a row, rows of the block). A row's threads are a power of two.
// Replaces each of the K values by its sum over the row's threads. Every thread of the block calls.
// turn: 0 and 1 from call to call. A warp that is a call ahead then writes where nobody reads, and
// one barrier is enough.
template <int K, class A>
__device__ void row_sum(A (&values)[K], int turn) {
    __shared__ A sums[2][32][K];  // of each warp of the block
    const int lane = threadIdx.x % kWarp;
    const int warps = blockDim.x / kWarp;
    const int first = threadIdx.y * warps;  // of the row's warps
    for (A& value : values) value = warp_sum(value, smaller<int>(blockDim.x, kWarp));
    if (warps <= 1) return;
    if (lane == 0) {
        for (int k = 0; k < K; ++k) sums[turn][first + threadIdx.x / kWarp][k] = values[k];
    }
    __syncthreads();
    for (int k = 0; k < K; ++k)
        values[k] = warp_sum(sums[turn][first + (lane & (warps - 1))][k], warps);
}

// ---- sums over rows

template <class T>
__device__ void put(Into<T> to, int64_t c, Acc<T> sum) {
    if (to.buffer != nullptr) {
        to.buffer[c] += sum;
    } else {
        to.fresh[c] = T(sum);
    }
}

// Second pass: many blocks have left partial sums, [count, cols] each. a[c] = sum over i of
// partial_a[i, c], and b likewise, unless partial_b is null; blockIdx.y chooses. Blocks are
// (columns, rows), the rows a power of two.
constexpr int kSumThreads = 512;  // of a block
constexpr int kRowsAtOnce = 64;   // which leaves 8 columns: the 32 bytes that memory moves at once

template <class T>
__global__ void column_sums(const Acc<T>* partial_a, Into<T> a, const Acc<T>* partial_b, Into<T> b,
                            int64_t count, int64_t cols) {
    __shared__ Acc<T> sums[kSumThreads];
    const Acc<T>* partial = blockIdx.y == 0 ? partial_a : partial_b;
    const int64_t col = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    Acc<T> sum = 0;
    if (col < cols) {
#pragma unroll 4
        for (int64_t i = threadIdx.y; i < count; i += blockDim.y) sum += partial[i * cols + col];
    }
    Acc<T>* mine = sums + threadIdx.y * blockDim.x + threadIdx.x;
    *mine = sum;
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) *mine += mine[half * blockDim.x];
    }
    if (threadIdx.y == 0 && col < cols) put(blockIdx.y == 0 ? a : b, col, *mine);
}

template <class T>
void launch_column_sums(const Acc<T>* partial_a, Into<T> a, const Acc<T>* partial_b, Into<T> b,
                        int64_t count, int64_t cols, cudaStream_t stream) {
    int rows = 4;
    while (rows < kRowsAtOnce && rows < count) rows *= 2;
    const dim3 block(kSumThreads / rows, rows);
    const dim3 grid(ceil_div<int64_t>(cols, block.x), partial_b == nullptr ? 1 : 2);
    column_sums<<<grid, block, 0, stream>>>(partial_a, a, partial_b, b, count, cols);
}
