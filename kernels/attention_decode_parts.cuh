// The parts into which attention_decode cuts a sequence, and how they are put together again.
#pragma once

#include "attention_decode_call.cuh"
#include "dependent_launch.cuh"
#include "softmax.cuh"

constexpr int kThreads = 128, kWarps = kThreads / kWarp;

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

// A block for each row of y. rows_at_once: of a chunk.
template <class T>
__global__ __launch_bounds__(kThreads) void decode_combine(Decode d, const float* parts, T* y,
                                                           int splits, int rows_at_once) {
    constexpr int kAtOnce = 4 * kThreads;
    __shared__ float factors[kAtOnce];
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
    for (int64_t first = 0; first < d.cols; first += kThreads) {
        const int64_t c = first + threadIdx.x;
        float sum = 0;
        for (int from = 0; from < splits; from += kAtOnce) {
            const int count = smaller(splits - from, kAtOnce);
            __syncthreads();
            for (int s = threadIdx.x; s < count; s += kThreads)
                factors[s] = OnlineSoftmax<T>::scale(parts[(from + s) * stride + d.cols], all.max);
            __syncthreads();
#pragma unroll 8
            for (int s = 0; s < count; ++s)
                sum += (c < d.cols ? parts[(from + s) * stride + c] : 0) * factors[s];
        }
        if (c < d.cols) y[line * d.cols + c] = mean_of<T>(sum, all.sum, length);
    }
}
