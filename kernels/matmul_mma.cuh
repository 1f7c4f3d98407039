// The version of matmul by mma.sync: tensor cores of any GPU since compute capability 8.0.
#pragma once

#include "matmul_product.cuh"
#include "mma.cuh"

// ---- mma: a block of eight warps has 128 x 128 elements of y, each warp 64 x 32, in fragments of
// 16 x 8 that tensor cores sum. (Of doubles it has four warps and 128 x 64 elements.)
// Three tiles, of 128 bytes of k, wait in shared memory, asked for by cp.async while the one before
// them is multiplied; ldmatrix takes them from there, and in the swizzle it finds each eight pieces
// of 16 bytes in different banks.
// Flaw: fragments of x and w pass through registers, and the threads that ask for tiles, load
// fragments and multiply are the same: an H200's tensor cores get half of what they can do.
//
// How x and w lie in memory is known when it is compiled: by row, where neighbours in memory are of
// one row, or else by column.

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

// How a thread fills tiles of x or of w, which have `side` rows: of each it copies four pieces of
// 16 bytes, one in every 32nd line, or eight or four of x and w of doubles, one in every 16th. By
// row a line is a row's; by column the first kDepth lines are of the first kDepth rows, one for
// each of k, and the next kDepth lines of the next rows.
template <class T, bool by_row, int side = MmaTile<T>::kSide>
class TileCopy {
    using Tile = MmaTile<T>;
    static constexpr int kApart = Tile::kThreads / 8, kPieces = side / kApart,
                         kOfHalf = kPieces / 2;
    static constexpr bool one_k = by_row || kApart % Tile::kDepth == 0;  // a piece is rows further

    const T* const data;
    const T* first[2];     // of the first piece of each half
    int64_t apart, ahead;  // to the piece after each of them; to the next tile
    int sizes[kPieces];    // elements of a piece that rows, or columns, of the matrix have
    bool whole = true;     // all of them

    static __device__ int line() { return threadIdx.x / 8; }
    static __device__ int piece() { return threadIdx.x % 8 * Tile::kPiece; }
    static __device__ int row_of(int n) {
        const int each = line() + n * kApart;
        return by_row ? each : each / Tile::kDepth * Tile::kDepth + piece();
    }
    static __device__ int k_of(int n) {
        return by_row ? piece() : (line() + n * kApart) % Tile::kDepth;
    }
    static __device__ char* at(char* tile, int n) {
        return tile + swizzled(line() + n * kApart, threadIdx.x % 8 * kVecBytes);
    }
    __device__ const T* source(int n, int step) const {
        return first[n / kOfHalf] + n % kOfHalf * apart + step * ahead;
    }

  public:
    __device__ TileCopy(const Operand<T>& from, int64_t matrix, const TileRows<side>& rows)
        : data(from.data),
          apart(one_k ? kApart * from.row : kApart * from.col),
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

    // The tile of k from step * kDepth on, of which there are `depth`.
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

// The 64 x 32 elements of y that a warp has: rows from `down` on, and of the 16 columns of
// fragments those with number warp % 4 + 4 * n.
struct WarpPlace {
    int lane, down, right;

    __device__ static WarpPlace of_thread() {
        const int warp = threadIdx.x / kWarp;
        return {int(threadIdx.x) % kWarp, warp / 4 * 64, warp % 4 * 8};
    }
    // Of number i of the sums of fragments (m, 0) to (m, 3): its row and column of the tile.
    __device__ int row(int m, int i) const { return down + m * 16 + lane / 4 + i / 2 % 2 * 8; }
    __device__ int column(int i) const { return right + i / 4 * 32 + lane % 4 * 2 + i % 2; }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Four matrices of 8 rows and 16 bytes of k, as fragments have them: matrix i begins with row
// r + i % 2 * apart and k + i / 2 * 16 bytes; or across, r + i / 2 * apart and k + i % 2 * 16.
template <class T, bool by_row>
__device__ void load_matrices(uint32_t (&to)[4], const char* tile, int r, int apart, bool across,
                              int k) {
    const int lane = threadIdx.x % kWarp;
    const auto row = [&](int i) { return r + (across ? i / 2 : i % 2) * apart; };
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

// Adds a warp's products over all k of a tile of x and one of w.
template <class T, bool x_by_row, bool w_by_row>
__device__ void multiply_tiles(float (&sums)[4][4][4], const char* tile_x, const char* tile_w,
                               const WarpPlace& place) {
    tile_x += place.down * kTileRow;  // as many lines are before its rows in either layout
#pragma unroll
    for (int k = 0; k < kTileRow; k += 2 * kVecBytes) {
        uint32_t a[4][4], b[2][4];
        for (int m = 0; m < 4; ++m) load_matrices<T, x_by_row>(a[m], tile_x, m * 16, 8, false, k);
        for (int n = 0; n < 2; ++n)
            load_matrices<T, w_by_row>(b[n], tile_w, place.right + n * 64, 32, true, k);
        for (int m = 0; m < 4; ++m)
            for (int n = 0; n < 4; ++n) mma<T>(sums[m][n], a[m], &b[n / 2][n % 2 * 2]);
    }
}

// A warp's 64 x 32 elements of y, in four parts; a thread has 16 sums of each, in two rows, and
// with swiglu in both halves. (Of doubles: in matmul_doubles.cuh.)
template <class T, bool x_by_row, bool w_by_row>
class WarpSums {
    const WarpPlace place = WarpPlace::of_thread();
    float sums[4][4][4] = {};

  public:
    __device__ void add(const char* tile_x, const char* tile_w) {
        multiply_tiles<T, x_by_row, w_by_row>(sums, tile_x, tile_w, place);
    }
    __device__ void take_part(int m, float (&each)[16]) {
        take(reinterpret_cast<float (&)[4][16]>(sums), m, each);
    }
    __device__ int row(int m, int i) const { return place.row(m, i); }
    __device__ int column(int i) const { return place.column(i); }
};

#endif

template <class T, bool x_by_row, bool w_by_row>
__global__ void __launch_bounds__(MmaTile<T>::kThreads, 2) matmul_mma(Product<T> p, TileGrid grid) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using Tile = MmaTile<T>;
    extern __shared__ char memory[];
    char* const tiles = &tile_aligned<char>(memory);
    const TilePlace place = grid.place(blockIdx.x);
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

    WarpSums<T, x_by_row, w_by_row> sums;
    for (int step = 0; step < Tile::kStages - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<Tile::kStages - 2>();
        __syncthreads();  // all have this step's tiles, and none reads the step before it any more
        fetch(step + Tile::kStages - 1);
        const char* const stage = tiles + step % Tile::kStages * Tile::kStage;
        sums.add(stage, stage + Tile::kBytes);
    }

#pragma unroll 1
    for (int m = 0; m < 4; ++m) {
        Acc<T> each[16];  // fragment n has 4 * n and the three after it
        sums.take_part(m, each);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int64_t row = rows(sums.row(m, i)), unit = columns(sums.column(i));
            if (row >= 0 && unit >= 0 && i < 16 / halves(p))
                put(p, place.matrix, row, unit, each[i], each[(i + 8) % 16]);
        }
    }
#endif
}

template <class T, bool x_by_row, bool w_by_row>
bool launch_mma_by(const Product<T>& p, cudaStream_t stream) {
    using Tile = MmaTile<T>;
    auto* const compiled = matmul_mma<T, x_by_row, w_by_row>;
    cudaFuncAttributes has = {};
    if (cudaFuncGetAttributes(&has, compiled) != cudaSuccess || has.ptxVersion < 80) return false;
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w) || Tile::kShared > shared_bytes())
        return false;
    if (p.act == kSwiglu && !w_by_row && p.units % kVec<T> != 0) return false;
    cudaFuncSetAttribute(compiled, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kShared);
    const TileGrid grid(p, Tile::kSide, Tile::kColumns);
    matmul_mma<T, x_by_row, w_by_row>
        <<<grid.tiles(), Tile::kThreads, Tile::kShared, stream>>>(p, grid);
    return true;
}

// False: this GPU, or how x and w lie in memory, is not for it.
template <class T>
bool launch_mma(const Product<T>& p, cudaStream_t stream) {
    if (p.x.col == 1) {
        return p.w.col == 1 ? launch_mma_by<T, true, true>(p, stream)
                            : launch_mma_by<T, true, false>(p, stream);
    }
    return p.w.col == 1 ? launch_mma_by<T, false, true>(p, stream)
                        : launch_mma_by<T, false, false>(p, stream);
}
