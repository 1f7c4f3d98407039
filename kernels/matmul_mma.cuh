// The version of matmul by mma.sync: tensor cores of any GPU since compute capability 8.0.
#pragma once

#include "matmul_product.cuh"
#include "mma.cuh"

// ---- mma: a block of eight warps has 128 x 128 elements of y, each warp 64 x 32, in fragments of
// 16 x 8 that tensor cores sum. Three tiles of 64 of k wait in shared memory, asked for by cp.async
// while the one before them is multiplied; ldmatrix takes them from there, and in the swizzle it
// finds each eight pieces of 16 bytes in different banks.
// Flaw: fragments of x and w pass through registers, and the threads that ask for tiles, load
// fragments and multiply are the same: an H200's tensor cores get half of what they can do.

struct MmaTile {
    static constexpr int kSide = 128, kStages = 3, kThreads = 256;
    template <class T>
    static constexpr int kDepth = kTileRow / sizeof(T);  // of k
    static constexpr int kBytes = kSide * kTileRow;      // of x, and as many of w
    static constexpr int kShared = kStages * 2 * kBytes + kTileAlign;
};

// 128 rows of x or w and kDepth of k, from `k` on: a line for each row; or, where neighbours in
// memory are of one column, for the first 64 rows a line for each of k, and then for the others.
template <class T>
__device__ void fetch_tile(char* tile, const Operand<T>& from, int64_t matrix,
                           const TileRows<MmaTile::kSide>& rows, int64_t k, int64_t depth) {
    for (int i = threadIdx.x; i < MmaTile::kBytes / kVecBytes; i += MmaTile::kThreads) {
        constexpr int V = kVec<T>;
        const int line = i / 8, piece = i % 8;
        const bool by_row = from.col == 1;
        const int r = by_row ? line : line / 64 * 64 + piece * V;
        const int64_t row = rows(r), at_k = k + (by_row ? piece * V : line % 64);
        const int64_t left = by_row ? depth - at_k : rows.end[r / 64] - row;  // elements in memory
        const bool there = row >= 0 && at_k < depth;
        cp_async_or_zeros(tile + swizzled(line, piece * kVecBytes),
                          there ? at(from, matrix, row, at_k) : from.data,
                          there ? int(smaller<int64_t>(left, V)) : 0);
    }
}

// Where a lane's row of a matrix of 8 x 8 stands that begins with row r and k of the tile.
template <class T>
__device__ const char* matrix_row(const char* tile, const Operand<T>& from, int r, int k) {
    const int lane = threadIdx.x % 8;
    if (from.col == 1) return tile + swizzled(r + lane, k * int(sizeof(T)));
    return tile + swizzled(r / 64 * 64 + k + lane, r % 64 * int(sizeof(T)));
}

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

// Adds a warp's products over all k of a tile of x and one of w.
template <class T>
__device__ void multiply_tiles(float (&sums)[4][4][4], const char* tile_x, const char* tile_w,
                               const Operand<T>& x, const Operand<T>& w, const WarpPlace& place) {
    constexpr int V = kVec<T>;
    const int lane = place.lane;
#pragma unroll
    for (int k = 0; k < MmaTile::kDepth<T>; k += 2 * V) {
        uint32_t a[4][4], b[2][4];
        for (int m = 0; m < 4; ++m) {
            const int r = place.down + m * 16 + lane / 8 % 2 * 8;
            ldmatrix(a[m], matrix_row(tile_x, x, r, k + lane / 16 * V), x.col != 1);
        }
        for (int n = 0; n < 2; ++n) {
            const int r = place.right + (2 * n + lane / 16) * 32;
            ldmatrix(b[n], matrix_row(tile_w, w, r, k + lane / 8 % 2 * V), w.col != 1);
        }
        for (int m = 0; m < 4; ++m)
            for (int n = 0; n < 4; ++n) mma<T>(sums[m][n], a[m], &b[n / 2][n % 2 * 2]);
    }
}

#endif

template <class T>
__global__ void __launch_bounds__(MmaTile::kThreads) matmul_mma(Product<T> p, TileGrid grid) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using Tile = MmaTile;
    extern __shared__ char memory[];
    char* const tiles = &tile_aligned<char>(memory);
    const TilePlace place = grid.place(blockIdx.x);
    const auto rows = TileRows<Tile::kSide>::of(place.row, p.rows);
    const auto columns = TileRows<Tile::kSide>::of_w(p, place.column);
    const int steps = int(ceil_div<int64_t>(p.depth, Tile::kDepth<T>));
    const auto fetch = [&](int step) {
        char* const stage = tiles + step % Tile::kStages * 2 * Tile::kBytes;
        if (step < steps) {
            fetch_tile(stage, p.x, place.matrix, rows, int64_t(step) * Tile::kDepth<T>, p.depth);
            fetch_tile(stage + Tile::kBytes, p.w, place.matrix, columns,
                       int64_t(step) * Tile::kDepth<T>, p.depth);
        }
        cp_async_commit();
    };

    const WarpPlace warp = WarpPlace::of_thread();
    float sums[4][4][4] = {};
    for (int step = 0; step < Tile::kStages - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<Tile::kStages - 2>();
        __syncthreads();  // all have this step's tiles, and none reads the step before it any more
        fetch(step + Tile::kStages - 1);
        const char* const tile_x = tiles + step % Tile::kStages * 2 * Tile::kBytes;
        const char* const tile_w = tile_x + Tile::kBytes;
        multiply_tiles(sums, tile_x, tile_w, p.x, p.w, warp);
    }

#pragma unroll 1
    for (int m = 0; m < 4; ++m) {
        float each[16];  // fragment n has 4 * n and the three after it
        take(reinterpret_cast<float (&)[4][16]>(sums), m, each);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int64_t row = rows(warp.row(m, i)), unit = columns(warp.column(i));
            if (row >= 0 && unit >= 0 && i < 16 / halves(p))
                put(p, place.matrix, row, unit, each[i], each[(i + 8) % 16]);
        }
    }
#endif
}

// False: this GPU, or how x and w lie in memory, is not for it.
template <class T>
bool launch_mma(const Product<T>& p, cudaStream_t stream) {
    using Tile = MmaTile;
    cudaFuncAttributes compiled = {};
    if (cudaFuncGetAttributes(&compiled, matmul_mma<T>) != cudaSuccess || compiled.ptxVersion < 80)
        return false;
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w) || Tile::kShared > shared_bytes())
        return false;
    if (p.act == kSwiglu && p.w.col != 1 && p.units % kVec<T> != 0) return false;
    cudaFuncSetAttribute(matmul_mma<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kShared);
    const TileGrid grid(p, Tile::kSide, Tile::kSide);
    matmul_mma<<<grid.tiles(), Tile::kThreads, Tile::kShared, stream>>>(p, grid);
    return true;
}
