// The mma.sync version of attention, for 16-bit floats from compute capability 8.0 on. A block has
// four warps, with 16 rows of each product. cp.async loads the next tile while this one is
// multiplied (double buffering); tiles are swizzled (swizzle.cuh), so that ldmatrix has no bank
// conflicts. The scores stay in registers: accumulators have the layout of the A operand of the
// next product.
//
// Head sizes are multiples of 8, up to kCols; missing columns are zeros.
#pragma once

#include "attention_softmax.cuh"
#include "mma.cuh"

constexpr int kMmaThreads = 128, kMmaRows = 64;

// Tiles lie in boxes of 64 columns.
__host__ __device__ constexpr int box_bytes(int rows) { return rows * kTileRow; }
__host__ __device__ constexpr int tile_bytes(int rows, int cols) {
    return cols / 64 * box_bytes(rows);
}

template <int kCols>
struct MmaForward {
    static constexpr int kKeys = kCols > 128 ? 32 : 64;
    static constexpr int kQBytes = tile_bytes(kMmaRows, kCols), kKBytes = tile_bytes(kKeys, kCols);
    static constexpr int kBytes = kQBytes + 4 * kKBytes;  // two stages of k and v
};

// A backward block has 64 rows, or 64 keys, and as many of the others as registers allow.
template <int kCols>
struct MmaBackward {
    static constexpr int kStep = kCols > 64 ? 32 : 64;
    static constexpr int kOut = kCols > 128 ? 128 : kCols;  // columns of dk and dv
    static constexpr int kBlockBytes = tile_bytes(kMmaRows, kCols);
    static constexpr int kStepBytes = tile_bytes(kStep, kCols);
    static constexpr int kBytes =
        2 * kBlockBytes + 4 * kStepBytes + 2 * kStep * int(sizeof(RowInfo));
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

__device__ inline char* at_chunk(char* tile, int rows, int row, int chunk) {
    return tile + chunk / 8 * box_bytes(rows) + swizzled(row, chunk % 8 * 16);
}

// Starts to copy `rows` rows; rows past `there` and columns past a.cols become zeros.
template <int rows, int kCols, class T>
__device__ void fetch_tile(char* tile, const T* from, int64_t stride, int64_t there, int64_t cols) {
    constexpr int kChunks = kCols / 8;
#pragma unroll 4
    for (int i = threadIdx.x; i < rows * kChunks; i += kMmaThreads) {
        const int r = i / kChunks, chunk = i % kChunks;
        const bool is_there = r < there && chunk * 8 < cols;
        cp_async_or_zeros(at_chunk(tile, rows, r, chunk),
                          is_there ? from + r * stride + chunk * 8 : from, is_there ? 8 : 0);
    }
}

// s [16, N] = 16 rows of x, from `row` on, times all N rows of w.
template <class T, int kCols, int x_rows, int N2>
__device__ void multiply_rows(float (&s)[N2], char* x, int row, char* w) {
    constexpr int N = 2 * N2;
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < N2; ++i) s[i] = 0;
#pragma unroll
    for (int c = 0; c < kCols / 16; ++c) {
        uint32_t left[4];
        ldmatrix(left, at_chunk(x, x_rows, row + lane % 16, 2 * c + lane / 16), false);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t right[4];
            ldmatrix(
                right, at_chunk(w, N, n + lane % 8 + lane / 16 * 8, 2 * c + lane / 8 % 2), false);
            mma<T>(reinterpret_cast<float (&)[4]>(s[n / 2]), left, right);
            mma<T>(reinterpret_cast<float (&)[4]>(s[n / 2 + 4]), left, right + 2);
        }
    }
}

// accum [16, N] += factor [16, w_rows] times w, N of its columns from 8 * chunk on.
template <class T, int w_rows, int N2>
__device__ void multiply_columns(float (&accum)[N2], const uint32_t (&factor)[w_rows / 4], char* w,
                                 int chunk = 0) {
    constexpr int N = 2 * N2;
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int r = 0; r < w_rows; r += 16) {
        const uint32_t left[4] = {
            factor[r / 4], factor[r / 4 + 1], factor[r / 4 + 2], factor[r / 4 + 3]};
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t right[4];
            ldmatrix(right, at_chunk(w, w_rows, r + lane % 16, chunk + n / 8 + lane / 16), true);
            mma<T>(reinterpret_cast<float (&)[4]>(accum[n / 2]), left, right);
            mma<T>(reinterpret_cast<float (&)[4]>(accum[n / 2 + 4]), left, right + 2);
        }
    }
}

// Writes a warp's 16 rows of accumulators, each times its factor, to y [rows, cols], with bounds
// `rows`, counted from the warp's first, and `cols`.
template <class T, int N2>
__device__ void write_rows(T* y, const float (&accum)[N2], const float (&factor)[2], int64_t rows,
                           int64_t stride, int cols) {
    const int row = threadIdx.x % kWarp / 4;
#pragma unroll
    for (int i = 0; i < N2; i += 2) {
        const int half = i / 2 % 2, column = column_of(i);
        if (row + 8 * half < rows && column < cols) {
            const uint32_t pair =
                rounded_pair<T>(accum[i] * factor[half], accum[i + 1] * factor[half]);
            *reinterpret_cast<uint32_t*>(y + (row + 8 * half) * stride + column) = pair;
        }
    }
}

#endif

// The rows of q of a block: the slices one after the other, and the last rows of each first,
// because in causal attention those see the most keys.
struct RowBlock {
    int64_t slice, tile;
    template <class Call>
    __device__ RowBlock(const Call& whole, int rows) {
        const int64_t tiles = whole.row_tiles(rows);
        slice = blockIdx.x / tiles;
        tile = tiles - 1 - blockIdx.x % tiles;
    }
};

// The keys that each of the thread's two rows sees, counted from `key`; none past the last row.
struct Limits {
    int begin[2], end[2];
    template <class Call>
    __device__ Limits(const Call& a, int64_t row, int64_t key) {
        for (int half = 0; half < 2; ++half) {
            const int64_t r = row + 8 * half;
            begin[half] = int(a.first_key(r) - key);
            end[half] = r < a.rows ? int(a.end_key(r) - key) : 0;
        }
    }
};

template <class T, int kCols, class Call>
__global__ __launch_bounds__(kMmaThreads) void forward_mma(Call whole, const T* q, const T* k,
                                                           const T* v, T* y, float* stats) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using S = MmaForward<kCols>;
    extern __shared__ char memory[];
    char* const q_tile = &tile_aligned<char>(memory);
    const auto k_tile = [&](int stage) { return q_tile + S::kQBytes + 2 * stage * S::kKBytes; };
    const auto v_tile = [&](int stage) { return k_tile(stage) + S::kKBytes; };
    RowBlock block(whole, kMmaRows);
    const auto& a = whole.of_rows(block.tile, kMmaRows);
    Place place = a.place(block.slice);
    place.row = block.tile * kMmaRows;
    if (Call::kPacked && place.row >= a.rows) return;
    const int64_t rows = smaller<int64_t>(kMmaRows, a.rows - place.row);
    const int warp = threadIdx.x / kWarp;
    const int64_t row = place.row + warp * 16 + threadIdx.x % kWarp / 4;
    const int64_t begin = a.first_key(place.row) / S::kKeys * S::kKeys;
    const int64_t end = a.end_key(place.row + rows - 1);
    k += a.key_at(a.k, place, 0);
    v += a.key_at(a.v, place, 0);
    const auto fetch_keys = [&](int64_t key, int stage) {
        if (key < end) {
            fetch_tile<S::kKeys, kCols>(
                k_tile(stage), k + key * a.k.row, a.k.row, a.keys - key, a.cols);
            fetch_tile<S::kKeys, kCols>(
                v_tile(stage), v + key * a.v.row, a.v.row, a.keys - key, a.cols);
        }
        cp_async_commit();
    };
    fetch_tile<kMmaRows, kCols>(q_tile, q + a.at(a.q, place), a.q.row, rows, a.cols);
    fetch_keys(begin, 0);

    RowsSoftmax soft;
    float accum[kCols / 2] = {};
    const float scale = float(a.scale) * kLog2E;
    int stage = 0;
    for (int64_t key = begin; key < end; key += S::kKeys, stage ^= 1) {
        fetch_keys(key + S::kKeys, stage ^ 1);
        cp_async_wait<1>();
        __syncthreads();
        float scores[S::kKeys / 2], factor[2];
        multiply_rows<T, kCols, kMmaRows>(scores, q_tile, warp * 16, k_tile(stage));
        if (key + S::kKeys > a.end_key(place.row) || key < a.first_key(place.row + rows - 1)) {
            const Limits limits(a, row, key);
            keep_columns(scores, limits.begin, limits.end, -INFINITY);
        }
        soft.take(scores, scale, factor);
        scale_rows(accum, factor);
        uint32_t weights[S::kKeys / 4];
        as_factor<T>(weights, scores);
        multiply_columns<T, S::kKeys>(accum, weights, v_tile(stage));
        __syncthreads();
    }

    float share[2];
    for (int half = 0; half < 2; ++half) {
        const Place at = {place.batch, place.head, row + 8 * half};
        share[half] = finalize_row(a, soft, half, at, stats);
    }
    y += a.at(a.y, {place.batch, place.head, place.row + warp * 16});
    write_rows(y, accum, share, rows - warp * 16, a.y.row, int(a.cols));
#endif
}

// dq for 64 rows. dp = g v^T.
template <class T, int kCols, class Call>
__global__ __launch_bounds__(kMmaThreads) void backward_q_mma(
    Call whole, const T* g, const T* q, const T* k, const T* v, const RowInfo* infos, T* dq) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using S = MmaBackward<kCols>;
    extern __shared__ char memory[];
    char* const q_tile = &tile_aligned<char>(memory);
    char* const g_tile = q_tile + S::kBlockBytes;
    const auto k_tile = [&](int stage) {
        return g_tile + S::kBlockBytes + 2 * stage * S::kStepBytes;
    };
    const auto v_tile = [&](int stage) { return k_tile(stage) + S::kStepBytes; };
    RowBlock block(whole, kMmaRows);
    const auto& a = whole.of_rows(block.tile, kMmaRows);
    Place place = a.place(block.slice);
    place.row = block.tile * kMmaRows;
    if (Call::kPacked && place.row >= a.rows) return;
    const int64_t rows = smaller<int64_t>(kMmaRows, a.rows - place.row);
    const int warp = threadIdx.x / kWarp;
    const int64_t row = place.row + warp * 16 + threadIdx.x % kWarp / 4;
    const int64_t begin = a.first_key(place.row) / S::kStep * S::kStep;
    const int64_t end = a.end_key(place.row + rows - 1);
    k += a.key_at(a.k, place, 0);
    v += a.key_at(a.v, place, 0);
    const auto fetch_keys = [&](int64_t key, int stage) {
        if (key < end) {
            fetch_tile<S::kStep, kCols>(
                k_tile(stage), k + key * a.k.row, a.k.row, a.keys - key, a.cols);
            fetch_tile<S::kStep, kCols>(
                v_tile(stage), v + key * a.v.row, a.v.row, a.keys - key, a.cols);
        }
        cp_async_commit();
    };
    fetch_tile<kMmaRows, kCols>(q_tile, q + a.at(a.q, place), a.q.row, rows, a.cols);
    fetch_tile<kMmaRows, kCols>(g_tile, g + a.at(a.g, place), a.g.row, rows, a.cols);
    fetch_keys(begin, 0);
    RowInfo info[2] = {};
    for (int half = 0; half < 2; ++half) {
        if (row + 8 * half < a.rows)
            info[half] = infos[info_at(a, {place.batch, place.head, row + 8 * half})];
    }

    float accum[kCols / 2] = {};
    const float scale = float(a.scale) * kLog2E;
    int stage = 0;
    for (int64_t key = begin; key < end; key += S::kStep, stage ^= 1) {
        fetch_keys(key + S::kStep, stage ^ 1);
        cp_async_wait<1>();
        __syncthreads();
        float scores[S::kStep / 2], dp[S::kStep / 2];
        multiply_rows<T, kCols, kMmaRows>(scores, q_tile, warp * 16, k_tile(stage));
        multiply_rows<T, kCols, kMmaRows>(dp, g_tile, warp * 16, v_tile(stage));
        const Limits limits(a, row, key);
#pragma unroll
        for (int i = 0; i < S::kStep / 2; ++i) {
            const int half = i / 2 % 2, column = column_of(i);
            const float p = quick_power_of_2(fmaf(scores[i], scale, -info[half].lse_log2));
            const bool seen = column >= limits.begin[half] && column < limits.end[half];
            dp[i] = seen ? p * (dp[i] - info[half].delta) : 0;
        }
        uint32_t ds[S::kStep / 4];
        as_factor<T>(ds, dp);
        multiply_columns<T, S::kStep>(accum, ds, k_tile(stage));
        __syncthreads();
    }
    const float factor[2] = {float(a.scale), float(a.scale)};
    dq += a.at(a.dq, {place.batch, place.head, place.row + warp * 16});
    write_rows(dq, accum, factor, rows - warp * 16, a.dq.row, int(a.cols));
#endif
}

// dk and dv for 64 keys, of kOut columns each: one tile of rows after the other, of all slices of q
// that share the keys (GQA). The scores are k q^T, so that p and ds have the rows of dk.
template <class T, int kCols, class Call>
__global__ __launch_bounds__(kMmaThreads) void backward_kv_mma(
    Call whole, const T* g, const T* q, const T* k, const T* v, const RowInfo* infos, T* dk,
    T* dv) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using S = MmaBackward<kCols>;
    constexpr int kOut = S::kOut;
    extern __shared__ char memory[];
    char* const k_tile = &tile_aligned<char>(memory);
    char* const v_tile = k_tile + S::kBlockBytes;
    const auto q_tile = [&](int stage) {
        return v_tile + S::kBlockBytes + 2 * stage * S::kStepBytes;
    };
    const auto g_tile = [&](int stage) { return q_tile(stage) + S::kStepBytes; };
    RowInfo* const shared_infos = reinterpret_cast<RowInfo*>(q_tile(2));
    const int warp = threadIdx.x / kWarp, out = blockIdx.y * kOut;
    const int64_t tiles = whole.key_tiles(kMmaRows), slice = blockIdx.x / tiles;
    int64_t tile = blockIdx.x % tiles;
    const auto& a = whole.of_keys(tile, kMmaRows);
    const int64_t key = tile * kMmaRows;
    if (Call::kPacked && key >= a.keys) return;
    const int64_t keys = smaller<int64_t>(kMmaRows, a.keys - key);

    // The tiles of rows that see one of these keys: `low` to `high` of each slice of q.
    const int64_t shift = a.keys - a.rows;
    const int64_t first_row = key - shift - a.right, last_row = key + keys - 1 - shift + a.left;
    const int64_t low = first_row > 0 ? first_row / S::kStep : 0;
    const int64_t top = smaller(last_row + 1, a.rows);
    const int64_t high = top > 0 ? ceil_div<int64_t>(top, S::kStep) : 0;
    const int64_t tiles_per_q_slice = high > low ? high - low : 0,
                  count = tiles_per_q_slice * a.q_slices_per_kv();
    const auto place_of = [&](int64_t n) {
        return a.q_place(slice, n / tiles_per_q_slice, (low + n % tiles_per_q_slice) * S::kStep);
    };
    const auto fetch_rows = [&](int64_t n, int stage) {
        if (n < count) {
            const Place place = place_of(n);
            const int64_t rows = a.rows - place.row;
            fetch_tile<S::kStep, kCols>(q_tile(stage), q + a.at(a.q, place), a.q.row, rows, a.cols);
            fetch_tile<S::kStep, kCols>(g_tile(stage), g + a.at(a.g, place), a.g.row, rows, a.cols);
            if (threadIdx.x < S::kStep) {
                RowInfo info = {};
                if (threadIdx.x < rows) info = infos[info_at(a, place) + threadIdx.x];
                shared_infos[stage * S::kStep + threadIdx.x] = info;
            }
        }
        cp_async_commit();
    };
    const Place first = a.q_place(slice, 0, 0);
    fetch_tile<kMmaRows, kCols>(k_tile, k + a.key_at(a.k, first, key), a.k.row, keys, a.cols);
    fetch_tile<kMmaRows, kCols>(v_tile, v + a.key_at(a.v, first, key), a.v.row, keys, a.cols);
    fetch_rows(0, 0);

    float of_k[kOut / 2] = {}, of_v[kOut / 2] = {};
    const float scale = float(a.scale) * kLog2E;
    int stage = 0;
    for (int64_t n = 0; n < count; ++n, stage ^= 1) {
        fetch_rows(n + 1, stage ^ 1);
        cp_async_wait<1>();
        __syncthreads();
        const int64_t row = place_of(n).row;
        float scores[S::kStep / 2], dp[S::kStep / 2];
        multiply_rows<T, kCols, kMmaRows>(scores, k_tile, warp * 16, q_tile(stage));
        multiply_rows<T, kCols, kMmaRows>(dp, v_tile, warp * 16, g_tile(stage));
        const int64_t mine = key + warp * 16 + threadIdx.x % kWarp / 4;
#pragma unroll
        for (int i = 0; i < S::kStep / 2; ++i) {
            const int column = column_of(i);
            const RowInfo info = shared_infos[stage * S::kStep + column];
            const int64_t r = row + column;
            const bool seen = r < a.rows && a.sees(r, mine + i / 2 % 2 * 8);
            scores[i] = seen ? quick_power_of_2(fmaf(scores[i], scale, -info.lse_log2)) : 0;
            dp[i] = seen ? scores[i] * (dp[i] - info.delta) : 0;
        }
        uint32_t factor[S::kStep / 4];
        as_factor<T>(factor, scores);
        multiply_columns<T, S::kStep>(of_v, factor, g_tile(stage), out / 8);
        as_factor<T>(factor, dp);
        multiply_columns<T, S::kStep>(of_k, factor, q_tile(stage), out / 8);
        __syncthreads();
    }
    dk += a.kv_at(a.dk, slice, key + warp * 16) + out;
    dv += a.kv_at(a.dv, slice, key + warp * 16) + out;
    const int cols = int(a.cols) - out;
    const float one[2] = {1, 1}, factor[2] = {float(a.scale), float(a.scale)};
    write_rows(dv, of_v, one, keys - warp * 16, a.dv.row, cols);
    write_rows(dk, of_k, factor, keys - warp * 16, a.dk.row, cols);
#endif
}

// ---- on the host

// Is this built for a GPU with mma.sync, and does the device have the shared memory?
template <class... P>
bool has_mma(void (*kernel)(P...), int bytes) {
    cudaFuncAttributes compiled = {};
    if (cudaFuncGetAttributes(&compiled, kernel) != cudaSuccess) {
        cudaGetLastError();  // not of the launch to come
        return false;
    }
    if (compiled.ptxVersion < 80 || bytes > shared_bytes()) return false;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) ==
           cudaSuccess;
}

// Tensor cores take rows of 16-bit floats that begin on 16 bytes, in whole multiples of that. Sizes
// are ints there, and the largest product is the largest score.
inline bool is_whole(const Strides& s) {
    return s.batch % 8 == 0 && s.head % 8 == 0 && s.row % 8 == 0;
}
template <class Call>
bool takes_tensor_cores(const Call& a) {
    constexpr int64_t most = 1 << 30;
    return a.slices() > 0 && a.cols > 0 && a.cols <= 256 && a.cols % 8 == 0 &&
           a.all_rows() < most && a.all_keys() < most && a.scale > 0 && is_whole(a.q) &&
           is_whole(a.k) && is_whole(a.v) && is_whole(a.y) && is_whole(a.g);
}

template <class T, int kCols, class Call>
bool launch_forward_mma(const Call& a, const T* q, const T* k, const T* v, T* y, float* stats,
                        cudaStream_t stream) {
    constexpr int bytes = MmaForward<kCols>::kBytes + kTileAlign;
    const auto kernel = forward_mma<T, kCols, Call>;
    if (!has_mma(kernel, bytes)) return false;
    const int64_t blocks = a.slices() * a.row_tiles(kMmaRows);
    kernel<<<blocks, kMmaThreads, bytes, stream>>>(a, q, k, v, y, stats);
    return true;
}

template <class T, int kCols, class Call>
bool can_backward_mma() {
    constexpr int bytes = MmaBackward<kCols>::kBytes + kTileAlign;
    return has_mma(backward_q_mma<T, kCols, Call>, bytes) &&
           has_mma(backward_kv_mma<T, kCols, Call>, bytes);
}

// scratch: the infos of all rows.
template <class T, int kCols, class Call>
void launch_backward_mma(const Call& a, const T* g, const T* q, const T* k, const T* v, const T* y,
                         const float* stats, float* scratch, T* dq, T* dk, T* dv,
                         cudaStream_t stream) {
    using S = MmaBackward<kCols>;
    constexpr int bytes = S::kBytes + kTileAlign;
    RowInfo* const infos = reinterpret_cast<RowInfo*>(scratch);
    const int64_t row_blocks = a.slices() * a.row_tiles(kMmaRows);
    const int64_t key_blocks = a.kv_slices() * a.key_tiles(kMmaRows);
    if (row_blocks) {
        launch_row_infos(a, g, y, stats, infos, stream);
        backward_q_mma<T, kCols, Call>
            <<<row_blocks, kMmaThreads, bytes, stream>>>(a, g, q, k, v, infos, dq);
    }
    if (key_blocks)
        backward_kv_mma<T, kCols, Call>
            <<<dim3(key_blocks, kCols / S::kOut), kMmaThreads, bytes, stream>>>(
                a, g, q, k, v, infos, dk, dv);
}
