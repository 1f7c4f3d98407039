// The version of attention_decode by mma.sync: tensor cores for 16-bit floats, from compute
// capability 8.0 on. The rows of q that share a head of k and v are the rows of one product, up to
// 16 of them; those that there are not cost nothing that memory would not take longer for.
//
// Each warp is alone: it takes every fourth 16 tokens of its block's part, copies those to shared
// memory several steps ahead, and has a softmax and sums of its own. So no warp waits for another
// one before the end, and a multiprocessor has some 100 KB of k and v on the way.
#pragma once

#include "attention_decode_parts.cuh"
#include "attention_mma.cuh"

template <int kCols>
struct MmaDecode {
    static constexpr int kRows = 16, kTokens = 16;  // of a warp's products
    static constexpr int kStages = kCols > 128 ? 2 : 3;
    static constexpr int kTile = tile_bytes(kTokens, kCols);  // of q, or of k or v in a stage
    static constexpr int kOfWarp = kStages * 2 * kTile;
    static constexpr int kOfSums = kWarps * kRows * kCols * int(sizeof(float));
    static constexpr int kOfStages = kWarps * kOfWarp > kOfSums ? kWarps * kOfWarp : kOfSums;
    static constexpr int kBytes = kTile + kOfStages + kTileAlign;
};

template <class T, int kCols>
__global__ __launch_bounds__(kThreads) void decode_mma(Decode d, const T* q, const T* k, const T* v,
                                                       T* y, float* parts, int splits) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using S = MmaDecode<kCols>;
    constexpr int kChunks = kCols / 8, kRows = S::kRows, kTokens = S::kTokens;
    constexpr unsigned kAll = 0xffffffff;
    extern __shared__ char memory[];
    __shared__ OnlineSoftmax<T> warps_soft[kWarps][kRows];
    char* const q_tile = &tile_aligned<char>(memory);
    char* const stages = q_tile + S::kTile;
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const auto k_tile = [&](int stage) {
        return stages + warp * S::kOfWarp + 2 * stage * S::kTile;
    };
    const auto v_tile = [&](int stage) { return k_tile(stage) + S::kTile; };
    const DecodePart part(d, kRows, splits);

    for (int i = threadIdx.x; i < kRows * kChunks; i += kThreads) {
        const int r = i / kChunks, chunk = i % kChunks;
        const bool is_there = r < part.rows && chunk * 8 < d.cols;
        const T* const from = q + (is_there ? part.row_of_q(d, r) + chunk * 8 : 0);
        cp_async_or_zeros(at_chunk(q_tile, kRows, r, chunk), from, is_there ? 8 : 0);
    }
    cp_async_commit();

    // Lane n finds token n; what there is not is 0.
    const auto token_of = [&](int64_t first) {
        const int64_t token = first + lane % kTokens;
        return token < part.end ? d.token(part.batch, token) : Token{-1, 0};
    };
    const auto fetch = [&](int64_t first, int stage) {
        if (first < part.end) {
            const Token token = token_of(first);
            const bool exists = token.page >= 0;
            const int64_t of_k = exists ? d.at(d.k, part.kv_head, token) : -1;
            const int64_t of_v = exists ? d.at(d.v, part.kv_head, token) : -1;
#pragma unroll
            for (int i = lane; i < kTokens * kChunks; i += kWarp) {
                const int n = i / kChunks, chunk = i % kChunks;
                const int64_t at_k = __shfl_sync(kAll, of_k, n), at_v = __shfl_sync(kAll, of_v, n);
                const int there = at_k >= 0 && chunk * 8 < d.cols ? 8 : 0;
                cp_async_or_zeros(at_chunk(k_tile(stage), kTokens, n, chunk),
                                  k + (there ? at_k + chunk * 8 : 0), there);
                cp_async_or_zeros(at_chunk(v_tile(stage), kTokens, n, chunk),
                                  v + (there ? at_v + chunk * 8 : 0), there);
            }
        }
        cp_async_commit();
    };

    int64_t first_token[2], end_token[2];  // that this thread's two rows see
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int r = lane / 4 + 8 * half;
        const int64_t query = part.query(d, smaller<int64_t>(r, part.rows - 1));
        first_token[half] = d.first_key(part.length, query);
        end_token[half] = r < part.rows ? smaller(d.end_key(part.length, query), part.end) : 0;
    }
    RowsSoftmax soft;
    float sums[kCols / 2] = {};
    const float scale = float(d.scale) * kLog2OfE;
    constexpr int64_t step = kWarps * kTokens;
    int64_t token = part.begin + warp * kTokens;
    for (int stage = 0; stage < S::kStages - 1; ++stage) fetch(token + stage * step, stage);
    cp_async_wait<S::kStages - 1>();
    __syncthreads();  // all of q is there
    for (int stage = 0; token < part.end; token += step) {
        fetch(token + (S::kStages - 1) * step, (stage + S::kStages - 1) % S::kStages);
        cp_async_wait<S::kStages - 1>();
        __syncwarp();
        float scores[kTokens / 2], factor[2];
        multiply_rows<T, kCols, kRows>(scores, q_tile, 0, k_tile(stage));
        if (d.table) {
            const bool lacks = token + lane % kTokens < part.end && token_of(token).page < 0;
            const unsigned missing = __ballot_sync(kAll, lacks);
#pragma unroll
            for (int i = 0; i < kTokens / 2; ++i)
                if (missing >> column_of(i) & 1) scores[i] = NAN;
        }
        int begin[2], end[2];
        for (int half = 0; half < 2; ++half) {
            begin[half] = int(first_token[half] - token);
            end[half] = int(end_token[half] - token);
        }
        hide(scores, begin, end);
        soft.take(scores, scale, factor);
        scale_rows(sums, factor);
        uint32_t weights[kTokens / 4];
        as_factor<T>(weights, scores);
        multiply_columns<T, kTokens>(sums, weights, v_tile(stage));
        __syncwarp();  // now the stage may be filled again
        stage = (stage + 1) % S::kStages;
    }

    __syncthreads();
    auto& warps_sums = *reinterpret_cast<float (*)[kWarps][kRows][kCols]>(stages);
#pragma unroll
    for (int i = 0; i < kCols / 2; ++i)
        warps_sums[warp][lane / 4 + i / 2 % 2 * 8][column_of(i)] = sums[i];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float max = soft.max[half], sum = sum_of_row(soft.sum[half]);
        const float scaled = max == -INFINITY ? max : max * float(d.scale);
        if (lane % 4 == 0) warps_soft[warp][lane / 4 + 8 * half] = {scaled, sum};
    }
    __syncthreads();
    launch_dependents();
    part.finish(d, warps_sums, warps_soft, parts, y, splits);
#endif
}
