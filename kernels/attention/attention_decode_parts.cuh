// Split-KV: how attention_decode cuts a sequence into splits, and combines them.
#pragma once

#include "attention_decode_call.cuh"
#include "dependent_launch.cuh"
#include "softmax.cuh"

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kMostCols = 256;  // of a kernel that splits

// partials [batches, kv_heads, chunks of rows, splits, rows of a chunk, cols + 2]: for each row
// accumulators, their largest score and their sum of exponentials.
__host__ __device__ inline int64_t partial_floats(const Decode& d, int rows) {
    return rows * (d.cols + 2);
}

// An element of y from accumulators over all keys: 0 for a query that sees none, and NaN where all
// scores are -infinity, as in PyTorch.
template <class T>
__device__ T mean_of(float sum, float powers, const Decode& d, int64_t length, int64_t query) {
    const bool sees = d.first_key(length, query) < d.end_key(length, query);
    return T(length < 0 ? NAN : sees ? sum / powers : 0.0f);
}

// The accumulators of a warp.
template <class T, int kRows_, int kCols_>
struct WarpPartial {
    static constexpr int kRows = kRows_, kCols = kCols_;
    float accum[kRows][kCols];
    OnlineSoftmax<T> soft[kRows];
};

// The split of a block: tokens from `begin` on and before `end` of a sequence, for a chunk of the
// rows of q that share a head of k and v (GQA). Splits begin on multiples of `tile` tokens, except
// the first, which begins with the first token that a query sees.
struct KvSplit {
    int64_t batch, kv_head, length;
    int begin, end, group, first_row, rows;

    // Everything is below 2^31: 64-bit divisions would take a hundred instructions each before the
    // first load.
    __device__ KvSplit(const Decode& d, int rows_at_once, int splits, int tile = 1) {
        group = int(d.group());
        const unsigned all_rows = group * unsigned(d.queries), kv_heads = unsigned(d.kv_heads);
        const unsigned chunks = (all_rows + rows_at_once - 1) / rows_at_once;
        const unsigned split = blockIdx.x % splits, chunk = blockIdx.x / splits;
        const unsigned slice = chunk / chunks;
        batch = slice / kv_heads, kv_head = slice % kv_heads;
        first_row = chunk % chunks * rows_at_once;
        rows = smaller<int>(rows_at_once, all_rows - first_row);
        length = d.length(batch);
        const int least = int(d.first_key(length, 0)), first = least / tile * tile;
        const unsigned tiles = length > least ? (unsigned(length - first) + tile - 1) / tile : 0;
        const int64_t share = (tiles + splits - 1) / splits * int64_t(tile);
        const int64_t from = split == 0 ? least : first + split * share;
        begin = int(smaller(length, from));
        end = int(smaller(length, first + (split + 1) * share));
    }
    __device__ int query(const Decode& d, int row) const {
        return unsigned(first_row + row) % unsigned(d.queries);
    }
    __device__ int64_t head(const Decode& d, int row) const {
        return kv_head * group + unsigned(first_row + row) / unsigned(d.queries);
    }
    __device__ int64_t row_of_q(const Decode& d, int row) const {
        return batch * d.q.batch + head(d, row) * d.q.head + query(d, row) * d.q.row;
    }

    // Combines the accumulators of the warps of a block to a partial result, or to y if there is
    // only one split. memory: the accumulators, one every `stride` bytes.
    template <class Partial, class T>
    __device__ void combine_warps(const Decode& d, const char* memory, int stride, float* partials,
                                  T* y, int splits) const {
        const auto of = [&](int warp) -> const Partial& {
            return *reinterpret_cast<const Partial*>(memory + warp * stride);
        };
        constexpr int kPairs = Partial::kCols / 2;  // of columns
        const int warps = blockDim.x / kWarp, cols = int(d.cols);
        partials += blockIdx.x * partial_floats(d, Partial::kRows);
#pragma unroll 1
        for (int i = threadIdx.x; i < rows * kPairs; i += blockDim.x) {
            const int r = i / kPairs, c = i % kPairs * 2;
            if (c >= cols) continue;
            float max = -INFINITY, powers = 0, first = 0, second = 0;
#pragma unroll 4
            for (int w = 0; w < warps; ++w) max = larger(max, of(w).soft[r].max);
#pragma unroll 4
            for (int w = 0; w < warps; ++w) {
                const float factor = OnlineSoftmax<T>::scale(of(w).soft[r].max, max);
                const Vec<float, 2> accum = load<2>(&of(w).accum[r][c]);
                first += accum[0] * factor, second += accum[1] * factor;
                powers += of(w).soft[r].sum * factor;
            }
            if (splits == 1) {
                const int64_t line = (batch * d.heads + head(d, r)) * d.queries + query(d, r);
                const auto mean = [&](float sum) {
                    return mean_of<T>(sum, powers, d, length, query(d, r));
                };
                store(y + line * cols + c, Vec<T, 2>{{mean(first), mean(second)}});
            } else {
                float* const row = partials + r * (cols + 2);
                store(row + c, Vec<float, 2>{{first, second}});
                if (c == 0) store(row + cols, Vec<float, 2>{{max, powers}});
            }
        }
    }
};

constexpr int kCombineWarps = 8, kCombineThreads = kCombineWarps * kWarp;

// Combines the splits. A block for each row of y; a warp takes every eighth split, and a lane of it
// two columns of 64. rows_at_once: of a chunk.
template <class T>
__global__ __launch_bounds__(kCombineThreads) void decode_combine(
    Decode d, const float* partials, T* y, int splits, int rows_at_once) {
    constexpr int kPairs = kMostCols / kWarp / 2;  // of a lane
    __shared__ float warps_accum[kCombineWarps][kMostCols];
    __shared__ OnlineSoftmax<T> warps_soft[kCombineWarps];
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, cols = int(d.cols);
    const unsigned line = blockIdx.x, queries = unsigned(d.queries), heads = unsigned(d.heads);
    const unsigned slice = line / queries, batch = slice / heads, head = slice % heads;
    const unsigned group = unsigned(d.group()), row = head % group * queries + line % queries;
    const unsigned chunks = (group * queries + rows_at_once - 1) / rows_at_once;
    const int64_t block =
        ((batch * d.kv_heads + head / group) * chunks + row / rows_at_once) * splits;
    const int64_t stride = partial_floats(d, rows_at_once);
    partials = grid_dependency_wait(partials) + block * stride + row % rows_at_once * (cols + 2);

    OnlineSoftmax<T> mine = OnlineSoftmax<T>::identity();
    float accum[2 * kPairs] = {};
#pragma unroll 2
    for (int s = warp; s < splits; s += kCombineWarps) {
        const float* const partial = partials + s * stride;
        const float max = partial[cols], powers = partial[cols + 1], all = larger(mine.max, max);
        const float kept = OnlineSoftmax<T>::scale(mine.max, all);
        const float factor = OnlineSoftmax<T>::scale(max, all);
        mine = {all, mine.sum * kept + powers * factor};
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
            if (const int c = 2 * (lane + i * kWarp); c < cols) {
                const Vec<float, 2> pair = load<2>(partial + c);
                accum[2 * i] = fmaf(pair[0], factor, accum[2 * i] * kept);
                accum[2 * i + 1] = fmaf(pair[1], factor, accum[2 * i + 1] * kept);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
        if (const int c = 2 * (lane + i * kWarp); c < cols)
            store(&warps_accum[warp][c], Vec<float, 2>{{accum[2 * i], accum[2 * i + 1]}});
    }
    if (lane == 0) warps_soft[warp] = mine;
    __syncthreads();
    const int c = threadIdx.x;
    if (c >= cols) return;
    float max = -INFINITY, powers = 0, sum = 0;
#pragma unroll
    for (const auto& soft : warps_soft) max = larger(max, soft.max);
#pragma unroll
    for (int w = 0; w < kCombineWarps; ++w) {
        const float factor = OnlineSoftmax<T>::scale(warps_soft[w].max, max);
        powers += warps_soft[w].sum * factor;
        sum += warps_accum[w][c] * factor;
    }
    y[line * d.cols + c] = mean_of<T>(sum, powers, d, d.length(batch), line % queries);
}
