// The mma.sync version of matmul_fp8, for GPUs from compute capability 8.9 on.
#pragma once

#include "matmul_fp8_product.cuh"
#include "matmul_mma.cuh"

// ---- mma: the tiles, pipeline and fragments of the same version of matmul. A stage has 128 of k,
// which share a scale: the accumulators of each stage are multiplied by their scales and added to
// float sums.
// Flaw: that of matmul; and Hopper executes this instruction as products of float16
// (docs/ptx.md).

using Fp8Tile = MmaTile<Float8>;

// Copies a tile of unaligned rows, byte by byte.
__device__ inline void fetch_bytes(char* tile, const Operand<Float8>& from,
                                   const TileRows<Fp8Tile::kSide>& rows, int64_t k, int64_t depth) {
    for (int i = threadIdx.x; i < Fp8Tile::kBytes / kVecBytes; i += Fp8Tile::kThreads) {
        const int line = i / 8, piece = i % 8 * kVecBytes;
        const int64_t row = rows(line);
        Vec<Float8, kVecBytes> bytes;
#pragma unroll
        for (int n = 0; n < kVecBytes; ++n) {
            const int64_t at_k = k + piece + n;
            bytes[n] = row >= 0 && at_k < depth ? *at(from, 0, row, at_k) : Float8{0};
        }
        store(reinterpret_cast<Float8*>(tile + swizzled(line, piece)), bytes);
    }
}

// vectors: whether rows of x and w may be read 16 bytes at a time.
template <class T>
__global__ void __launch_bounds__(Fp8Tile::kThreads) matmul_fp8_mma(Float8Product<T> p,
                                                                    TileGrid grid, bool vectors) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    using Tile = Fp8Tile;
    extern __shared__ char memory[];
    char* const tiles = &tile_aligned<char>(memory);
    const TilePlace place = grid.place(blockIdx.x);
    const auto rows = TileRows<Tile::kSide>::of(place.row, p.rows);
    const auto columns = TileRows<Tile::kSide>::of(place.column, p.units);
    const TileCopy<Float8, true> copy_x(p.x, 0, rows), copy_w(p.w, 0, columns);
    const int steps = int(ceil_div<int64_t>(p.depth, kScaleBlock));
    const auto fetch = [&](int step) {
        char* const tile_x = tiles + step % Tile::kStages * 2 * Tile::kBytes;
        char* const tile_w = tile_x + Tile::kBytes;
        const int64_t k = int64_t(step) * kScaleBlock;
        if (step < steps && vectors) {
            copy_x(tile_x, step, p.depth);
            copy_w(tile_w, step, p.depth);
        } else if (step < steps) {
            fetch_bytes(tile_x, p.x, rows, k, p.depth);
            fetch_bytes(tile_w, p.w, columns, k, p.depth);
        }
        cp_async_commit();
    };

    const WarpPlace warp = WarpPlace::of_thread();
    float final_accum[4][4][4] = {};
    for (int step = 0; step < Tile::kStages - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<Tile::kStages - 2>();
        __syncthreads();  // this stage is full, and the previous one is free
        fetch(step + Tile::kStages - 1);
        const char* const tile_x = tiles + step % Tile::kStages * 2 * Tile::kBytes;
        float accum[4][4][4] = {};
        multiply_tiles<Float8, true, true>(accum, tile_x, tile_x + Tile::kBytes, warp);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            float scales[2];
            for (int n = 0; n < 2; ++n)
                scales[n] = block_scale(
                    p, rows.first[0] + warp.row(m, 2 * n), place.column * Tile::kSide, step);
#pragma unroll
            for (int i = 0; i < 16; ++i)
                final_accum[m][i / 4][i % 4] += accum[m][i / 4][i % 4] * scales[i / 2 % 2];
        }
    }

#pragma unroll 1
    for (int m = 0; m < 4; ++m) {
        float each[16];
        select_chunk(reinterpret_cast<float (&)[4][16]>(final_accum), m, each);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int64_t row = rows(warp.row(m, i)), unit = columns(warp.column(i));
            if (row >= 0 && unit >= 0) epilogue_element(p, row, unit, each[i]);
        }
    }
#endif
}

// False if this GPU has no such tensor cores.
template <class T>
bool launch_fp8_mma(const Float8Product<T>& p, cudaStream_t stream) {
    using Tile = Fp8Tile;
    cudaFuncAttributes compiled = {};
    if (cudaFuncGetAttributes(&compiled, matmul_fp8_mma<T>) != cudaSuccess ||
        compiled.ptxVersion < 89 || Tile::kShared > shared_bytes())
        return false;
    cudaFuncSetAttribute(
        matmul_fp8_mma<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kShared);
    const TileGrid grid(1, p.rows, p.units, Tile::kSide, Tile::kSide);
    const bool vectors = reads_in_vectors(p.x) && reads_in_vectors(p.w);
    matmul_fp8_mma<<<grid.tiles(), Tile::kThreads, Tile::kShared, stream>>>(p, grid, vectors);
    return true;
}
