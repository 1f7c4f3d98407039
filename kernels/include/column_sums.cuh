// Sums over rows: the end of the first pass, in which a block adds up what its threads have, and
// the second pass, which adds up what the blocks have left.
#pragma once

#include "dependent_launch.cuh"

// ---- within a block, in shared memory

// Replaces the first row of each of `sums`, [rows, cols] in shared memory, by the sum of all rows.
// All threads of the block call this. Each column is added up in a fixed order.
template <class... A>
__device__ void add_rows_together(int rows, int cols, A*... sums) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    for (__syncthreads(); rows > 1; __syncthreads()) {
        const int half = (rows + 1) / 2;
        for (int i = thread; i < (rows - half) * cols; i += threads)
            ((sums[i] += sums[half * cols + i]), ...);
        rows = half;
    }
}

// Where a first pass leaves sums of columns: in rows of partial sums, [count, cols], for the second
// pass.
template <class T>
struct PartialSums {
    Acc<T>* partial;

    // begin: of the block's row of partial sums.
    __device__ void store(int64_t begin, int64_t c, Acc<T> sum) const { partial[begin + c] = sum; }
    // Stores N neighbours. kAligned: they begin on a boundary.
    template <bool kAligned, int N>
    __device__ void store(int64_t begin, int64_t c, const Acc<T> (&sums)[N]) const {
        if constexpr (kAligned) {
            ::store(partial + begin + c, sums);
        } else {
            for (int k = 0; k < N; ++k) store(begin, c + k, sums[k]);
        }
    }
};

// The same; or in the gradient, where one block has all rows and no second pass is launched.
template <class T>
struct ColumnSums : PartialSums<T> {  // partial is null: in the gradient
    Into<T> gradient;

    __device__ void store(int64_t begin, int64_t c, Acc<T> sum) const {
        if (this->partial == nullptr) return store_column_sum(gradient, c, sum);
        PartialSums<T>::store(begin, c, sum);
    }
    template <bool kAligned, int N>
    __device__ void store(int64_t begin, int64_t c, const Acc<T> (&sums)[N]) const {
        if (this->partial != nullptr)
            return PartialSums<T>::template store<kAligned>(begin, c, sums);
        for (int k = 0; k < N; ++k) store_column_sum(gradient, c + k, sums[k]);
    }
};

// ---- of all blocks

// partial_a [count, cols]: a[c] = sum over i of partial_a[i, c], and b likewise, unless partial_b
// is null; then the second half of the blocks has b. Blocks are (columns, slices of the partial
// sums), both powers of two. It is a secondary kernel.
constexpr int kSumThreads = 512;  // of a block, at most
constexpr int kSumsAhead = 8;     // on their way to a thread

template <class T>
__global__ __launch_bounds__(kSumThreads) void column_sums(const Acc<T>* partial_a, Into<T> a,
                                                           const Acc<T>* partial_b, Into<T> b,
                                                           int64_t count, int64_t cols) {
    __shared__ Acc<T> sums[kSumThreads];
    const int across = gridDim.x / (partial_b == nullptr ? 1 : 2);
    const bool is_a = int(blockIdx.x) < across;
    const int64_t col = int64_t(blockIdx.x - (is_a ? 0 : across)) * blockDim.x + threadIdx.x;
    const Acc<T>* partial = grid_dependency_wait(is_a ? partial_a : partial_b);
    Acc<T> sum = 0;
    if (col < cols) {
#pragma unroll kSumsAhead
        for (int64_t i = threadIdx.y; i < count; i += blockDim.y) sum += partial[i * cols + col];
    }
    Acc<T>* mine = sums + threadIdx.y * blockDim.x + threadIdx.x;
    *mine = sum;
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) *mine += mine[half * blockDim.x];
    }
    if (threadIdx.y == 0 && col < cols) store_column_sum(is_a ? a : b, col, *mine);
}

// The block for so many partial sums of so many columns, in all: 32 columns across, or where those
// leave multiprocessors idle as few as 8, the 32 bytes that memory moves at once; and so many
// slices that a thread has kSumsAhead partial sums.
inline dim3 column_sums_block(int64_t count, int64_t cols) {
    int across = kWarp, slices = 4;
    while (across > 8 && ceil_div<int64_t>(cols, across) < 2 * multiprocessors()) across /= 2;
    while (slices < kSumThreads / across && slices * kSumsAhead < count) slices *= 2;
    return dim3(across, slices);
}

template <class T>
void launch_column_sums(const Acc<T>* partial_a, Into<T> a, const Acc<T>* partial_b, Into<T> b,
                        int64_t count, int64_t cols, cudaStream_t stream) {
    const int pair = partial_b == nullptr ? 1 : 2;
    const dim3 block = column_sums_block(count, pair * cols);
    launch_secondary(column_sums<T>, 1, unsigned(ceil_div<int64_t>(cols, block.x)) * pair, block,
                     stream, partial_a, a, partial_b, b, count, cols);
}
