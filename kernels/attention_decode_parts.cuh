// The parts into which attention_decode cuts a sequence, and how they are put together again.
#pragma once

#include "attention_decode_call.cuh"
#include "dependent_launch.cuh"
#include "softmax.cuh"

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kMostCols = 256;  // of a kernel that makes parts

// parts [batches, kv_heads, chunks of rows, splits, rows of a chunk, cols + 2]: for each row sums,
// their largest score and their sum of powers.
__host__ __device__ inline int64_t part_numbers(const Decode& d, int rows) {
    return rows * (d.cols + 2);
}

// y, of all parts of its sequence.
template <class T>
__device__ T mean_of(float sum, float powers, int64_t length) {
    return T(length < 0 ? NAN : powers == 0 ? 0.0f : sum / powers);
}

// What a block has: of a sequence's tokens those from `begin` on and before `end`, for a chunk of
// the rows of q that share a head of k and v.
struct DecodePart {
    int64_t batch, kv_head, first_row, rows, length, begin, end;

    __device__ DecodePart(const Decode& d, int rows_at_once, int splits) {
        const int64_t chunks = ceil_div<int64_t>(d.rows(), rows_at_once);
        const int64_t split = blockIdx.x % splits, slice = blockIdx.x / splits / chunks;
        batch = slice / d.kv_heads, kv_head = slice % d.kv_heads;
        first_row = blockIdx.x / splits % chunks * rows_at_once;
        rows = smaller<int64_t>(rows_at_once, d.rows() - first_row);
        length = d.length(batch);
        const int64_t least = d.first_key(length, 0);  // that any of the queries sees
        const int64_t share = ceil_div<int64_t>(length - least, splits);
        begin = least + split * share, end = smaller(length, begin + share);
    }
    __device__ int64_t query(const Decode& d, int64_t row) const {
        return (first_row + row) % d.queries;
    }
    __device__ int64_t head(const Decode& d, int64_t row) const {
        return kv_head * d.group() + (first_row + row) / d.queries;
    }
    __device__ int64_t row_of_q(const Decode& d, int64_t row) const {
        return batch * d.q.batch + head(d, row) * d.q.head + query(d, row) * d.q.row;
    }

    // Puts together what the block's warps have, to a part, or to y where that is the only one.
    template <class T, int kRows, int kCols>
    __device__ void finish(const Decode& d, const float (&sums)[kWarps][kRows][kCols],
                           const OnlineSoftmax<T> (&soft)[kWarps][kRows], float* parts, T* y,
                           int splits) const {
        parts += blockIdx.x * part_numbers(d, kRows);
        for (int i = threadIdx.x; i < rows * kCols; i += kThreads) {
            const int r = i / kCols, c = i % kCols;
            OnlineSoftmax<T> all = OnlineSoftmax<T>::identity();
            for (int w = 0; w < kWarps; ++w) all.combine(soft[w][r]);
            float sum = 0;
            for (int w = 0; w < kWarps; ++w)
                sum += sums[w][r][c] * OnlineSoftmax<T>::scale(soft[w][r].max, all.max);
            if (splits == 1) {
                const int64_t line = (batch * d.heads + head(d, r)) * d.queries + query(d, r);
                if (c < d.cols) y[line * d.cols + c] = mean_of<T>(sum, all.sum, length);
                continue;
            }
            float* const row = parts + r * (d.cols + 2);
            if (c < d.cols) row[c] = sum;
            if (c == 0) row[d.cols] = all.max, row[d.cols + 1] = all.sum;
        }
    }
};

// A block for each row of y. A warp takes every fourth part, and a lane of it every 32nd column.
// rows_at_once: of a chunk.
template <class T>
__global__ __launch_bounds__(kThreads) void decode_combine(Decode d, const float* parts, T* y,
                                                           int splits, int rows_at_once) {
    constexpr int kColumns = kMostCols / kWarp;  // of a lane
    __shared__ float warps_sums[kWarps][kMostCols];
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const int64_t line = blockIdx.x, slice = line / d.queries, query = line % d.queries;
    const int64_t batch = slice / d.heads, head = slice % d.heads;
    const int64_t row = head % d.group() * d.queries + query;
    const int64_t chunks = ceil_div<int64_t>(d.rows(), rows_at_once);
    const int64_t block =
        ((batch * d.kv_heads + head / d.group()) * chunks + row / rows_at_once) * splits;
    const int64_t stride = part_numbers(d, rows_at_once), length = d.length(batch);
    parts = grid_dependency_wait(parts) + block * stride + row % rows_at_once * (d.cols + 2);

    BlockReduce<> reduce;
    OnlineSoftmax<T> all = OnlineSoftmax<T>::identity();
    for (int s = threadIdx.x; s < splits; s += kThreads) {
        const float* const its = parts + s * stride + d.cols;
        all.combine({its[0], its[1]});
    }
    all = reduce(all);
    float sums[kColumns] = {};
#pragma unroll 4
    for (int s = warp; s < splits; s += kWarps) {
        const float* const its = parts + s * stride;
        const float factor = OnlineSoftmax<T>::scale(its[d.cols], all.max);
#pragma unroll
        for (int i = 0; i < kColumns; ++i)
            if (const int c = lane + i * kWarp; c < d.cols) sums[i] += its[c] * factor;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) warps_sums[warp][lane + i * kWarp] = sums[i];
    __syncthreads();
    for (int c = threadIdx.x; c < d.cols; c += kThreads) {
        float sum = 0;
        for (const auto& its : warps_sums) sum += its[c];
        y[line * d.cols + c] = mean_of<T>(sum, all.sum, length);
    }
}
