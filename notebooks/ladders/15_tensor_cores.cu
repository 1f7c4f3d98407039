// Products of matrices by tensor cores: y = x w^T
//
//   x [rows, depth], w [units, depth] bfloat16, y [rows, units] float
//
// rows and units are multiples of kSide, depth of kDepth; the launchers refuse others. The op's own
// version, which takes all shapes and layouts, is matmul_mma in kernels/matmul/matmul_mma.cuh.
//
// Work: 2 * rows * units * depth operations.

#include <cuda_bf16.h>
#include "mma.cuh"
#include "rows.cuh"

using T = nv_bfloat16;
constexpr int kSide = 128;     // of a block's tile of y
constexpr int kDepth = 64;     // of its tiles of x and w, whose rows so have kTileRow bytes
constexpr int kThreads = 256;  // of such a block: eight warps, each with 64 x 32 of y
constexpr int kTileBytes = kSide * kTileRow;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// ---- direct: a warp has 16 x 8 elements of y, one product of tensor cores for each 16 of depth.
// Each lane reads its elements of both operands from memory, two neighbours at a time.
// Flaw: each element that is read serves 8 or 16 products.

constexpr int kWarps = 4;  // of a block, side by side

__device__ uint32_t pair_at(const T* two) { return *reinterpret_cast<const uint32_t*>(two); }

__global__ void product_direct(const T* x, const T* w, float* y, int units, int depth) {
    const int lane = threadIdx.x, down = lane / 4, right = lane % 4 * 2;
    const int64_t row = blockIdx.y * 16, unit = (blockIdx.x * kWarps + threadIdx.y) * 8;
    x += (row + down) * depth + right;
    w += (unit + down) * depth + right;
    float sums[4] = {};
    for (int k = 0; k < depth; k += 16) {
        const T* const below = x + 8 * depth;
        const uint32_t a[4] = {
            pair_at(x + k), pair_at(below + k), pair_at(x + k + 8), pair_at(below + k + 8)};
        const uint32_t b[2] = {pair_at(w + k), pair_at(w + k + 8)};
        mma<T>(sums, a, b);
    }
    for (int i = 0; i < 4; ++i)
        y[(row + down + i / 2 * 8) * units + unit + right + i % 2] = sums[i];
}

// ---- tiles: a block has 128 x 128 elements of y, and the tiles for them in shared memory, from
// which ldmatrix takes the fragments: each serves four products.
// Flaw: where rows of 128 bytes stand one after the other, the same piece of eight rows is in the
// same banks; in the swizzle it is not. And threads carry the tiles from memory, and then wait.

struct Straight {
    __device__ static int at(int row, int column) { return row * kTileRow + column; }
};
struct Swizzled {
    __device__ static int at(int row, int column) { return swizzled(row, column); }
};

// The n-th 16 bytes of a tile that a thread moves.
struct Piece {
    int row, column;  // column in bytes
    __device__ explicit Piece(int n) {
        const int i = threadIdx.x + n * kThreads;
        row = i / 8, column = i % 8 * kVecBytes;
    }
};
constexpr int kPieces = kTileBytes / kVecBytes / kThreads;  // of a tile, for each thread

template <class Layout>
__device__ void fill(char* tile, const T* from, int depth) {
    Vec<T, 8> pieces[kPieces];
    for (int n = 0; n < kPieces; ++n) {
        const Piece piece(n);
        pieces[n] = load<8>(from + int64_t(piece.row) * depth + piece.column / 2);
    }
    for (int n = 0; n < kPieces; ++n) {
        const Piece piece(n);
        store(reinterpret_cast<T*>(tile + Layout::at(piece.row, piece.column)), pieces[n]);
    }
}

// Adds the products of two tiles to a warp's sums: four fragments of 16 rows by four of 8 columns.
template <class Layout>
__device__ void multiply(const char* tile_x, const char* tile_w, float (&sums)[4][4][4]) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const int down = warp / 4 * 64, right = warp % 4 * 32;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
        uint32_t a[4][4], b[2][4];
        for (int m = 0; m < 4; ++m) {
            const int row = down + m * 16 + lane % 16, of_k = k + lane / 16 * 8;
            ldmatrix(a[m], tile_x + Layout::at(row, of_k * 2), false);
        }
        for (int n = 0; n < 2; ++n) {
            const int row = right + n * 16 + lane / 16 * 8 + lane % 8, of_k = k + lane / 8 % 2 * 8;
            ldmatrix(b[n], tile_w + Layout::at(row, of_k * 2), false);
        }
        for (int m = 0; m < 4; ++m)
            for (int n = 0; n < 4; ++n) mma<T>(sums[m][n], a[m], &b[n / 2][n % 2 * 2]);
    }
}

__device__ void write(float* y, int units, const float (&sums)[4][4][4]) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const int64_t row = blockIdx.y * kSide + warp / 4 * 64 + lane / 4;
    const int unit = blockIdx.x * kSide + warp % 4 * 32 + lane % 4 * 2;
    for (int m = 0; m < 4; ++m)
        for (int n = 0; n < 4; ++n)
            for (int i = 0; i < 4; ++i)
                y[(row + m * 16 + i / 2 * 8) * units + unit + n * 8 + i % 2] = sums[m][n][i];
}

template <class Layout>
__global__ void __launch_bounds__(kThreads, 2) product_tiles(const T* x, const T* w, float* y,
                                                             int units, int depth) {
    __shared__ __align__(kTileAlign) char tile_x[kTileBytes], tile_w[kTileBytes];
    x += int64_t(blockIdx.y) * kSide * depth;
    w += int64_t(blockIdx.x) * kSide * depth;
    float sums[4][4][4] = {};
    for (int k = 0; k < depth; k += kDepth) {
        fill<Layout>(tile_x, x + k, depth);
        fill<Layout>(tile_w, w + k, depth);
        __syncthreads();
        multiply<Layout>(tile_x, tile_w, sums);
        __syncthreads();
    }
    write(y, units, sums);
}

// ---- stages: tiles come by cp.async, which needs no registers, and kStages - 1 steps of them are
// on the way or waiting while one is multiplied.
// Flaw: mma.sync takes its operands from registers, and all warps do everything.

constexpr int kStages = 3, kStageBytes = 2 * kTileBytes;
constexpr int kShared = kStages * kStageBytes + kTileAlign;

__device__ void fetch(char* tile, const T* from, int depth) {
    for (int n = 0; n < kPieces; ++n) {
        const Piece piece(n);
        T* const to = reinterpret_cast<T*>(tile + swizzled(piece.row, piece.column));
        cp_async_or_zeros(to, from + int64_t(piece.row) * depth + piece.column / 2, 8);
    }
}

__global__ void __launch_bounds__(kThreads, 2) product_stages(const T* x, const T* w, float* y,
                                                              int units, int depth) {
    extern __shared__ char memory[];
    char* const tiles = &tile_aligned<char>(memory);
    x += int64_t(blockIdx.y) * kSide * depth;
    w += int64_t(blockIdx.x) * kSide * depth;
    const int steps = depth / kDepth;
    const auto fetch_step = [&](int step) {
        char* const stage = tiles + step % kStages * kStageBytes;
        if (step < steps) {
            fetch(stage, x + step * kDepth, depth);
            fetch(stage + kTileBytes, w + step * kDepth, depth);
        }
        cp_async_commit();  // an empty group, too: so the last one is always kStages - 2 behind
    };
    float sums[4][4][4] = {};
    for (int step = 0; step < kStages - 1; ++step) fetch_step(step);
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<kStages - 2>();
        __syncthreads();  // all threads' pieces are there, and nobody reads the step before
        fetch_step(step + kStages - 1);
        const char* const stage = tiles + step % kStages * kStageBytes;
        multiply<Swizzled>(stage, stage + kTileBytes, sums);
    }
    write(y, units, sums);
}

#else  // these GPUs have no such instructions

struct Straight {};
struct Swizzled {};
constexpr int kWarps = 4, kShared = 0;
__global__ void product_direct(const T*, const T*, float*, int, int) {}
template <class Layout>
__global__ void product_tiles(const T*, const T*, float*, int, int) {}
__global__ void product_stages(const T*, const T*, float*, int, int) {}

#endif

// ---- launchers

using Kernel = void(const T*, const T*, float*, int, int);

cudaError_t launch(Kernel* kernel, dim3 grid, dim3 block, int shared, const T* x, const T* w,
                   float* y, int rows, int units, int depth, cudaStream_t stream) {
    cudaFuncAttributes compiled = {};
    if (cudaFuncGetAttributes(&compiled, kernel) != cudaSuccess || compiled.ptxVersion < 80)
        return cudaErrorNotSupported;
    if (rows % kSide != 0 || units % kSide != 0 || depth % kDepth != 0) {
        return cudaErrorInvalidValue;
    }
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    kernel<<<grid, block, shared, stream>>>(x, w, y, units, depth);
    return cudaGetLastError();
}

extern "C" cudaError_t direct(const nv_bfloat16* x, const nv_bfloat16* w, float* y, int rows,
                              int units, int depth, cudaStream_t stream) {
    const dim3 grid(units / 8 / kWarps, rows / 16), block(kWarp, kWarps);
    return launch(product_direct, grid, block, 0, x, w, y, rows, units, depth, stream);
}

extern "C" cudaError_t straight(const nv_bfloat16* x, const nv_bfloat16* w, float* y, int rows,
                                int units, int depth, cudaStream_t stream) {
    const dim3 grid(units / kSide, rows / kSide);
    return launch(product_tiles<Straight>, grid, kThreads, 0, x, w, y, rows, units, depth, stream);
}

extern "C" cudaError_t swizzle(const nv_bfloat16* x, const nv_bfloat16* w, float* y, int rows,
                               int units, int depth, cudaStream_t stream) {
    const dim3 grid(units / kSide, rows / kSide);
    return launch(product_tiles<Swizzled>, grid, kThreads, 0, x, w, y, rows, units, depth, stream);
}

extern "C" cudaError_t stages(const nv_bfloat16* x, const nv_bfloat16* w, float* y, int rows,
                              int units, int depth, cudaStream_t stream) {
    const dim3 grid(units / kSide, rows / kSide);
    return launch(product_stages, grid, kThreads, kShared, x, w, y, rows, units, depth, stream);
}
