// The mma.sync version of matmul, for tensor cores from compute capability 8.0 on.
#pragma once

#include "matmul_product.cuh"
#include "mma.cuh"

// ---- mma: a block of eight warps computes 128 x 128 elements of y, each warp 64 x 32, in
// fragments of 16 x 8. (Of doubles: four warps and 128 x 64 elements.) A pipeline of three stages,
// each with 128 bytes of k, is filled by cp.async. ldmatrix loads the fragments from there; the
// swizzle puts each eight pieces of 16 bytes into different banks.
// Flaw: fragments of x and w pass
// through registers, and the same threads load tiles, load fragments and multiply: they reach half
// of the speed of an H200's tensor cores.
//
// The layout of x and w is known at compile time: by row, where neighbours in memory are of one
// row, or by column.

template <class T>
struct MmaTile {
    static constexpr bool kOfDoubles = sizeof(T) == 8;
    static constexpr int kSide = 128, kColumns = kOfDoubles ? 64 : 128;  // rows of x and of w
    static constexpr int kThreads = 2 * kColumns, kStages = 3;
    static constexpr int kPiece = kVecBytes / sizeof(T);  // elements of 16 bytes
    static constexpr int kDepth = kTileRow / sizeof(T);   // of a line of a tile, and of k
    static constexpr int kBytes = kSide * kTileRow;       // of x
    static constexpr int kStage = kBytes + kColumns * kTileRow;
    static constexpr int kShared = kStages * kStage + kTileAlign;
};

// How a thread copies its part of a tile of x or w, which has `side` rows: four pieces of 16 bytes,
// in every 32nd line; of doubles eight or four pieces, in every 16th line. By row, a line belongs
// to a row. By column, the first kDepth lines are of the first kDepth rows, one line for each k,
// and the next kDepth lines of the next rows.
template <class T, bool by_row, int side = MmaTile<T>::kSide>
class TileCopy {
    using Tile = MmaTile<T>;
    static constexpr int kLineStride = Tile::kThreads / 8, kPieces = side / kLineStride,
                         kOfHalf = kPieces / 2;
    static constexpr bool one_k =
        by_row || kLineStride % Tile::kDepth == 0;  // pieces differ in their rows only

    const T* const data;
    const T* first[2];      // the first piece of each half
    int64_t stride, ahead;  // strides to the next piece and to the next tile
    int sizes[kPieces];     // valid elements of each piece
    bool whole = true;      // whether all are valid

    static __device__ int line() { return threadIdx.x / 8; }
    static __device__ int piece() { return threadIdx.x % 8 * Tile::kPiece; }
    static __device__ int row_of(int n) {
        const int each = line() + n * kLineStride;
        return by_row ? each : each / Tile::kDepth * Tile::kDepth + piece();
    }
    static __device__ int k_of(int n) {
        return by_row ? piece() : (line() + n * kLineStride) % Tile::kDepth;
    }
    static __device__ char* at(char* tile, int n) {
        return tile + swizzled(line() + n * kLineStride, threadIdx.x % 8 * kVecBytes);
    }
    __device__ const T* source(int n, int step) const {
        return first[n / kOfHalf] + n % kOfHalf * stride + step * ahead;
    }

  public:
    __device__ TileCopy(const Operand<T>& from, int64_t matrix, const TileRows<side>& rows)
        : data(from.data),
          stride(one_k ? kLineStride * from.row : kLineStride * from.col),
          ahead(Tile::kDepth * from.col) {
        for (int n = 0; n < kPieces; ++n) {
            const int64_t row = rows(row_of(n)), left = rows.end[n / kOfHalf] - row;
            if (n % kOfHalf == 0) first[n / kOfHalf] = ::at(from, matrix, row, k_of(n));
            sizes[n] = row < 0  ? 0
                       : by_row ? Tile::kPiece
                                : int(smaller<int64_t>(left, Tile::kPiece));
            whole = whole && sizes[n] == Tile::kPiece;
        }
    }

    // Copies the tile of this step.
    __device__ void operator()(char* tile, int step, int64_t depth) const {
        const int64_t left = depth - int64_t(step) * Tile::kDepth;
        if (Tile::kOfDoubles && whole && left >= Tile::kDepth) {
#pragma unroll
            for (int n = 0; n < kPieces; ++n)
                __pipeline_memcpy_async(at(tile, n), source(n, step), kVecBytes);
            return;
        }
#pragma unroll
        for (int n = 0; n < kPieces; ++n) {
            int size = sizes[n];
            if (left < Tile::kDepth) {
                const int rest = int(left) - k_of(n);
                size = rest <= 0 ? 0 : by_row ? smaller(size, rest) : size;
            }
            const T* const from = source(n, step);
            cp_async_or_zeros(at(tile, n), size > 0 ? from : data, size);
        }
    }
};

// The 64 x 32 elements of y of a warp: rows from `down` on, and of the 16 column blocks of
// fragments those numbered warp % 4 + 4 * n.
struct WarpPlace {
    int lane, down, right;

    __device__ static WarpPlace of_thread() {
        const int warp = threadIdx.x / kWarp;
        return {int(threadIdx.x) % kWarp, warp / 4 * 64, warp % 4 * 8};
    }
    // The row and column in the tile of accumulator i of fragments (m, 0) to (m, 3).
    __device__ int row(int m, int i) const { return down + m * 16 + lane / 4 + i / 2 % 2 * 8; }
    __device__ int column(int i) const { return right + i / 4 * 32 + lane % 4 * 2 + i % 2; }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Four matrices of 8 rows by 16 bytes of k, as fragments need them. Matrix i begins at row r + i %
// 2 * stride and byte k + i / 2 * 16; or if `across`, at row r + i / 2 * stride and byte k + i % 2
// * 16.
template <class T, bool by_row>
__device__ void load_matrices(uint32_t (&to)[4], const char* tile, int r, int stride, bool across,
                              int k) {
    const int lane = threadIdx.x % kWarp;
    const auto row = [&](int i) { return r + (across ? i / 2 : i % 2) * stride; };
    const auto byte = [&](int i) { return k + (across ? i % 2 : i / 2) * kVecBytes; };
    if constexpr (by_row) {
        ldmatrix(to, tile + swizzled(row(lane / 8) + lane % 8, byte(lane / 8)), false);
    } else if constexpr (sizeof(T) == 2) {
        const int first = row(lane / 8), line = byte(lane / 8) / 2 + lane % 8;
        ldmatrix(to, tile + swizzled(first / 64 * 64 + line, first % 64 * 2), true);
    } else {  // ldmatrix transposes elements of 16 bits alone
        for (int i = 0; i < 4; ++i) {
            const int at = row(i) + lane / 4, line = byte(i) / 4 + lane % 4;
            memcpy(&to[i], tile + swizzled(at / 32 * 32 + line, at % 32 * 4), 4);
        }
    }
    if constexpr (sizeof(T) == 4) {
        for (uint32_t& each : to) each = rounded_to_tf32(each);
    }
}

// Accumulates a warp's products over all k of a tile of x and a tile of w.
template <class T, bool x_by_row, bool w_by_row>
__device__ void multiply_tiles(float (&accum)[4][4][4], const char* tile_x, const char* tile_w,
                               const WarpPlace& place) {
    tile_x += place.down * kTileRow;  // the same offset in either layout
#pragma unroll
    for (int k = 0; k < kTileRow; k += 2 * kVecBytes) {
        uint32_t a[4][4], b[2][4];
        for (int m = 0; m < 4; ++m) load_matrices<T, x_by_row>(a[m], tile_x, m * 16, 8, false, k);
        for (int n = 0; n < 2; ++n)
            load_matrices<T, w_by_row>(b[n], tile_w, place.right + n * 64, 32, true, k);
        for (int m = 0; m < 4; ++m)
            for (int n = 0; n < 4; ++n) mma<T>(accum[m][n], a[m], &b[n / 2][n % 2 * 2]);
    }
}

// The accumulators of a warp, 64 x 32 elements of y in four chunks; a thread has 16 of each chunk,
// in two rows, and with swiglu in both halves. (Of doubles: matmul_mma_double.cuh.)
template <class T, bool x_by_row, bool w_by_row>
class WarpAccumulators {
    const WarpPlace place = WarpPlace::of_thread();
    float accum[4][4][4] = {};

  public:
    __device__ void add(const char* tile_x, const char* tile_w) {
        multiply_tiles<T, x_by_row, w_by_row>(accum, tile_x, tile_w, place);
    }
    __device__ void get_chunk(int m, float (&each)[16]) {
        select_chunk(reinterpret_cast<float (&)[4][16]>(accum), m, each);
    }
    __device__ int row(int m, int i) const { return place.row(m, i); }
    __device__ int column(int i) const { return place.column(i); }
};

#endif

template <class T, bool x_by_row, bool w_by_row, class Grid = TileGrid>
__global__ void __launch_bounds__(MmaTile<T>::kThreads, 2) matmul_mma(Product<T> p, Grid grid) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using Tile = MmaTile<T>;
    extern __shared__ char memory[];
    char* const tiles = &tile_aligned<char>(memory);
    TilePlace place;
    if (!grid.find(blockIdx.x, p, place)) return;
    const auto rows = TileRows<Tile::kSide>::of(place.row, p.rows);
    const auto columns = TileRows<Tile::kColumns>::of_w(p, place.column);
    const TileCopy<T, x_by_row> copy_x(p.x, place.matrix, rows);
    const TileCopy<T, w_by_row, Tile::kColumns> copy_w(p.w, place.matrix, columns);
    const int steps = int(ceil_div<int64_t>(p.depth, Tile::kDepth));
    const auto fetch = [&](int step) {
        char* const stage = tiles + step % Tile::kStages * Tile::kStage;
        if (step < steps) {
            copy_x(stage, step, p.depth);
            copy_w(stage + Tile::kBytes, step, p.depth);
        }
        cp_async_commit();
    };

    WarpAccumulators<T, x_by_row, w_by_row> accum;
    for (int step = 0; step < Tile::kStages - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<Tile::kStages - 2>();
        __syncthreads();  // this stage is full, and the previous one is free
        fetch(step + Tile::kStages - 1);
        const char* const stage = tiles + step % Tile::kStages * Tile::kStage;
        accum.add(stage, stage + Tile::kBytes);
    }

#pragma unroll 1
    for (int m = 0; m < 4; ++m) {
        Acc<T> each[16];  // fragment n has 4 * n and the three after it
        accum.get_chunk(m, each);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int64_t row = rows(accum.row(m, i)), unit = columns(accum.column(i));
            if (row >= 0 && unit >= 0 && i < 16 / rows_per_unit(p))
                epilogue_element(p, place.matrix, row, unit, each[i], each[(i + 8) % 16]);
        }
    }
#endif
}

template <bool x_by_row, bool w_by_row, class Grid, class T, class... Groups>
bool launch_mma_by(const Product<T>& p, cudaStream_t stream, Groups... groups) {
    using Tile = MmaTile<T>;
    auto* const compiled = matmul_mma<T, x_by_row, w_by_row, Grid>;
    cudaFuncAttributes has = {};
    if (cudaFuncGetAttributes(&has, compiled) != cudaSuccess || has.ptxVersion < 80) return false;
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w) || Tile::kShared > shared_bytes())
        return false;
    if (p.act == kSwiglu && !w_by_row && p.units % kVec<T> != 0) return false;
    cudaFuncSetAttribute(compiled, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kShared);
    const Grid grid(p, Tile::kSide, Tile::kColumns, groups...);
    matmul_mma<T, x_by_row, w_by_row, Grid>
        <<<grid.tiles(), Tile::kThreads, Tile::kShared, stream>>>(p, grid);
    return true;
}

// False if this GPU or the layout of x and w does not allow it. groups: of a GroupGrid.
template <class Grid = TileGrid, class T, class... Groups>
bool launch_mma(const Product<T>& p, cudaStream_t stream, Groups... groups) {
    if (p.x.col == 1) {
        return p.w.col == 1 ? launch_mma_by<true, true, Grid>(p, stream, groups...)
                            : launch_mma_by<true, false, Grid>(p, stream, groups...);
    }
    return p.w.col == 1 ? launch_mma_by<false, true, Grid>(p, stream, groups...)
                        : launch_mma_by<false, false, Grid>(p, stream, groups...);
}
