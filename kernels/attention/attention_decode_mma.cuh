// The mma.sync version of attention_decode, for 16-bit floats from compute capability 8.0 on. The
// rows of q that share a head of k and v (GQA) are the rows of one product, up to 16 of them;
// unused rows cost nothing, because memory is slower.
//
// Each warp works alone: it takes every n-th tile of 16 tokens of the split of its block, copies
// tiles to shared memory two steps ahead, and has a softmax and accumulators of its own. So no warp
// waits for another one before the end, and a multiprocessor has 64 to 128 KB of k and v in flight.
//
// A call may take less than 30 us, of which one or two pass before memory is busy. So the kernel is
// short, because its instructions are not cached at first: code for paged caches is compiled for
// those only, and only inner loops are unrolled.
#pragma once

#include "attention_decode_parts.cuh"
#include "attention_mma.cuh"

template <int kCols>
struct MmaDecode {
    static constexpr int kRows = 16, kTokens = 16;  // of a warp's products
    static constexpr int kStages = kCols > 128 ? 2 : 3;
    static constexpr int kMostWarps = kCols > 128 ? 4 : 8;
    static constexpr int kTile = tile_bytes(kTokens, kCols);  // of k or v in a stage
    static constexpr int kWarpBytes = kStages * 2 * kTile;
    static constexpr int bytes(int warps) { return warps * kWarpBytes + kTileAlign; }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// The rows of q that share a head of k and v as A operands in the registers of a warp; missing rows
// are 0.
template <class T, int kCols>
struct RowsOfQ {
    uint32_t words[kCols / 16][4] = {};

    __device__ RowsOfQ(const Decode& d, const KvSplit& kv, const T* q) {
        const int lane = threadIdx.x % kWarp;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = lane / 4 + 8 * half, first = lane % 4 * 2;
            if (row >= kv.rows) continue;
            const T* const row_of_q = q + kv.row_of_q(d, row) + first;
#pragma unroll
            for (int i = 0; i < kCols / 8; ++i) {
                if (i * 8 < d.cols)
                    words[i / 2][half + i % 2 * 2] =
                        *reinterpret_cast<const uint32_t*>(row_of_q + i * 8);
            }
        }
    }

    // s [16, N] = these rows times all N rows of w.
    template <int N2>
    __device__ void multiply(float (&s)[N2], char* w) const {
        constexpr int N = 2 * N2;
        const int lane = threadIdx.x % kWarp;
#pragma unroll
        for (float& x : s) x = 0;
#pragma unroll
        for (int c = 0; c < kCols / 16; ++c) {
#pragma unroll
            for (int n = 0; n < N; n += 16) {
                uint32_t right[4];
                ldmatrix(right, at_chunk(w, N, n + lane % 8 + lane / 16 * 8, 2 * c + lane / 8 % 2),
                         false);
                mma<T>(reinterpret_cast<float (&)[4]>(s[n / 2]), words[c], right);
                mma<T>(reinterpret_cast<float (&)[4]>(s[n / 2 + 4]), words[c], right + 2);
            }
        }
    }
};

// Copies a warp's tiles of k and v to shared memory, from tile `token` on, with `step` tokens from
// one to the next. Tiles are aligned; tokens outside the split are 0.
template <class T, int kCols, bool kInPages>
class TokenTiles {
    static constexpr int kTokens = MmaDecode<kCols>::kTokens, kChunks = kCols / 8;
    static constexpr int kAtOnce = kWarp / kChunks, kEach = kTokens / kAtOnce;  // rows
    static constexpr unsigned kAll = 0xffffffff;
    const Decode& d_;
    const KvSplit& kv_;
    const T *k_, *v_;  // what this lane copies of the next tile; in pages, of the first token
    int token_, step_;
    int row_, chunk_;  // of this lane
    int count_;        // of the block's tokens, 0 for a lane that has no columns

  public:
    __device__ TokenTiles(const Decode& d, const KvSplit& kv, const T* k, const T* v, int token,
                          int step)
        : d_(d), kv_(kv), token_(token), step_(step) {
        const int lane = threadIdx.x % kWarp;
        row_ = lane / kChunks, chunk_ = lane % kChunks;
        const bool has_columns = chunk_ * 8 < d.cols;
        const int column = has_columns ? chunk_ * 8 : 0;
        count_ = has_columns ? kv.end - kv.begin : 0;
        const Token first = kInPages ? Token{0, 0} : Token{kv.batch, token + row_};
        k_ = k + d.at(d.k, kv.kv_head, first) + column;
        v_ = v + d.at(d.v, kv.kv_head, first) + column;
    }

    // Starts to copy the next tile, if there is one; commits a group in any case.
    __device__ void fetch_next(char* k_tile, char* v_tile) {
        if (token_ < kv_.end) {
            if constexpr (!kInPages) {
                fetch_rows(k_, v_, count_, k_tile, v_tile);
                k_ += step_ * d_.k.row, v_ += step_ * d_.v.row;
            } else if (d_.page_size % kTokens == 0) {  // all rows are in one page
                const Token first = d_.token(kv_.batch, token_);
                const bool exists = first.page >= 0;
                const Token token = exists ? Token{first.page, first.row + row_} : Token{0, 0};
                fetch_rows(k_ + d_.at(d_.k, 0, token), v_ + d_.at(d_.v, 0, token),
                           exists ? count_ : 0, k_tile, v_tile);
            } else {
                fetch_each(k_tile, v_tile);
            }
        }
        token_ += step_;
        cp_async_commit();
    }

    // Which tokens of a tile are in pages that do not exist, a bit for each.
    __device__ unsigned missing(int token) const {
        const int n = token + threadIdx.x % kTokens;
        return __ballot_sync(kAll, n < kv_.end && d_.token(kv_.batch, n).page < 0);
    }

  private:
    __device__ void copy(char* tile, int row, const T* from, bool is_there) const {
        cp_async_or_zeros(at_chunk(tile, kTokens, row, chunk_), from, is_there ? 8 : 0);
    }

    // Rows that are evenly spaced.
    __device__ void fetch_rows(const T* k, const T* v, int count, char* k_tile,
                               char* v_tile) const {
        const int first = token_ - kv_.begin + row_;
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const bool is_there = unsigned(first + i * kAtOnce) < unsigned(count);
            copy(k_tile, i * kAtOnce + row_, k + i * kAtOnce * d_.k.row, is_there);
            copy(v_tile, i * kAtOnce + row_, v + i * kAtOnce * d_.v.row, is_there);
        }
    }

    // Rows in several pages: lane n looks up token n.
    __device__ void fetch_each(char* k_tile, char* v_tile) const {
        const int n = token_ + threadIdx.x % kTokens;
        const bool is_ours = n >= kv_.begin && n < kv_.end;
        const Token token = is_ours ? d_.token(kv_.batch, n) : Token{-1, 0};
        const int64_t of_k = token.page >= 0 ? d_.at(d_.k, 0, token) : -1;
        const int64_t of_v = token.page >= 0 ? d_.at(d_.v, 0, token) : -1;
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const int row = i * kAtOnce + row_;
            const int64_t at_k = __shfl_sync(kAll, of_k, row), at_v = __shfl_sync(kAll, of_v, row);
            const bool is_there = at_k >= 0 && count_ > 0;
            copy(k_tile, row, k_ + (is_there ? at_k : 0), is_there);
            copy(v_tile, row, v_ + (is_there ? at_v : 0), is_there);
        }
    }
};

// Masks tokens that a row does not see, or that are outside the split.
template <int N>
__device__ void hide_tokens(float (&scores)[N], const Decode& d, const KvSplit& kv, int token) {
    int begin[2], end[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int query = kv.query(d, threadIdx.x % kWarp / 4 + 8 * half);
        const int first = int(d.first_key(kv.length, query));
        const int last = int(d.end_key(kv.length, query));
        begin[half] = (first < kv.begin ? kv.begin : first) - token;
        end[half] = smaller(last, kv.end) - token;
    }
    keep_columns(scores, begin, end, -INFINITY);
}

#endif

template <class T, int kCols, bool kInPages>
__global__ __launch_bounds__(MmaDecode<kCols>::kMostWarps* kWarp) void decode_mma(
    Decode d, const T* q, const T* k, const T* v, T* y, float* partials, int splits) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using S = MmaDecode<kCols>;
    using Partial = WarpPartial<T, S::kRows, kCols>;
    static_assert(
        sizeof(Partial) <= S::kWarpBytes, "a warp's accumulators take the place of its tiles");
    constexpr int kTokens = S::kTokens, kStages = S::kStages;
    extern __shared__ char memory[];
    char* const stages = &tile_aligned<char>(memory);
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    char* const mine = stages + warp * S::kWarpBytes;
    const auto k_tile = [&](int stage) { return mine + 2 * stage * S::kTile; };
    const auto v_tile = [&](int stage) { return k_tile(stage) + S::kTile; };
    const KvSplit kv(d, S::kRows, splits, kTokens);
    const int step = blockDim.x / kWarp * kTokens;
    int token = kv.begin / kTokens * kTokens + warp * kTokens;
    TokenTiles<T, kCols, kInPages> tiles(d, kv, k, v, token, step);
#pragma unroll 1
    for (int stage = 0; stage < kStages - 1; ++stage)
        tiles.fetch_next(k_tile(stage), v_tile(stage));

    const RowsOfQ<T, kCols> rows_of_q(d, kv, q);
    // Tokens from all_begin or kv.begin on and before all_end need no mask.
    const int all_begin = int(d.first_key(kv.length, d.queries - 1));
    const int all_end = smaller(int(d.end_key(kv.length, 0)), kv.end);
    const float scale = float(d.scale) * kLog2E;
    RowsSoftmax soft;
    float accum[kCols / 2] = {};
#pragma unroll 1
    for (int stage = 0; token < kv.end; token += step) {
        const int free = stage == 0 ? kStages - 1 : stage - 1;
        tiles.fetch_next(k_tile(free), v_tile(free));
        cp_async_wait<kStages - 1>();
        __syncwarp();
        float scores[kTokens / 2], factor[2];
        rows_of_q.multiply(scores, k_tile(stage));
        if constexpr (kInPages) {
            const unsigned missing = tiles.missing(token);
#pragma unroll
            for (int i = 0; i < kTokens / 2; ++i)
                if (missing >> column_of(i) & 1) scores[i] = NAN;
        }
        if (token < all_begin || token < kv.begin || token + kTokens > all_end)
            hide_tokens(scores, d, kv, token);
        soft.take(scores, scale, factor);
        scale_rows(accum, factor);
        uint32_t weights[kTokens / 4];
        as_factor<T>(weights, scores);
        multiply_columns<T, kTokens>(accum, weights, v_tile(stage));
        __syncwarp();  // the stage is free
        stage = stage == kStages - 1 ? 0 : stage + 1;
    }

    cp_async_wait<0>();
    __syncwarp();
    auto& partial = *reinterpret_cast<Partial*>(mine);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int r = lane / 4 + 8 * half;
        const float max = soft.max[half], sum = sum_of_row(soft.sum[half]);
        if (r >= kv.rows) continue;
#pragma unroll
        for (int i = 2 * half; i < kCols / 2; i += 4)
            store(&partial.accum[r][column_of(i)], Vec<float, 2>{{accum[i], accum[i + 1]}});
        if (lane % 4 == 0) partial.soft[r] = {max == -INFINITY ? max : max * float(d.scale), sum};
    }
    __syncthreads();
    launch_dependents();
    kv.combine_warps<Partial>(d, stages, S::kWarpBytes, partials, y, splits);
#endif
}
