// The pipeline of matmul by wgmma: the stages in shared memory, what the producer loads by TMA, and
// what the consumers multiply.
#pragma once

#include "matmul_epilogue.cuh"
#include "stages.cuh"

constexpr int kTileRows = 128;  // of x: two consumer warpgroups of 64
constexpr int kTileDepth = 64;  // of k: 128 bytes
constexpr int kConsumers = kTileRows / 64;

// One pipeline stage: the tiles of x and w for one step of k. A tile either has a line for each
// row, or, where the operand is contiguous along its columns, it consists of boxes of 64 rows with
// a line for each k.
template <class T, int columns>
struct Stage {
    T x[kTileRows * kTileDepth], w[columns * kTileDepth];
};
constexpr int kBox = 64 * kTileRow;  // bytes

// The tensor maps. Boxes of y and z are 64 x 64, or 16 x 64 in the fused epilogue, where each warp
// stores its own rows. Boxes of the residual are always 64 x 64. The two halves of z are two
// matrices.
struct Maps {
    CUtensorMap x, w, y, z, residual;
    CUtensorMap edge;  // of y, in boxes of 8 rows

    // The map of a half of z, and its box that belongs to one of y.
    __device__ const CUtensorMap& of_z(int) const { return z; }
    __device__ static BoxAt box_of_z(int half, const BoxAt& y) { return {y.column, y.row, half}; }
};

// The shared memory of a block of two consumer warpgroups and a producer warpgroup.
template <class Stage, int count>
struct PipelineStorage {
    Stage stages[count];
    EpilogueBuffers epilogue[kConsumers];
    Mbarrier full[count], empty[count];
};

#if HAS_WGMMA

// Starts the TMA load of half of a tile of `count` rows of x or w that begins at `row`. blocks: 0
// for this block, or a mask of the cluster's blocks to multicast to.
template <int count, class T>
__device__ void fetch_half(T* tile, int half, const CUtensorMap& map, bool by_row, int64_t row,
                           int step, int64_t matrix, Mbarrier& full, unsigned blocks) {
    const auto load = [&](int r, int column, int line) {
        T* const to = tile + (half * (count / 2) + r) * kTileDepth;
        if (blocks == 0) {
            tma_load(to, map, column, line, int(matrix), full);
        } else {
            tma_load_multicast(to, map, column, line, int(matrix), full, blocks);
        }
    };
    if (by_row) {
        load(0, step * kTileDepth, int(row));
    } else if (count == 64) {  // one box, which has both halves
        if (half == 0) load(0, int(row), step * kTileDepth);
    } else {
        for (int r = 0; r < count / 2; r += 64) load(r, int(row) + r, step * kTileDepth);
    }
}

// Issues the products of one stage: each accumulator has 64 rows of x by all columns of the tile.
template <bool kTransX, bool kTransW, class T, int kEach, int N>
__device__ void multiply(float (&accum)[kEach][N], const T* x, const T* w, bool adds) {
    const uint64_t of_x = wgmma_descriptor(x), of_w = wgmma_descriptor(w, kBox);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileDepth / 16; ++k) {
#pragma unroll
        for (int n = 0; n < kEach; ++n)
            wgmma<T, kTransX, kTransW>(accum[n], of_x + n * (kBox >> 4) + k * (kTransX ? 128 : 2),
                                       of_w + k * (kTransW ? 128 : 2), adds || k > 0);
    }
    wgmma_commit();
}
template <class T, int kEach, int N>
__device__ void multiply(float (&accum)[kEach][N], const Product<T>& p, const T* x, const T* w,
                         bool adds) {
    if (p.x.col == 1 && p.w.col == 1) {
        multiply<false, false>(accum, x, w, adds);
    } else if (p.x.col == 1) {
        multiply<false, true>(accum, x, w, adds);
    } else if (p.w.col == 1) {
        multiply<true, false>(accum, x, w, adds);
    } else {
        multiply<true, true>(accum, x, w, adds);
    }
}

// The position in the pipeline: the next stage, and how often the pipeline has wrapped around. The
// parity of that phase is what an mbarrier waits for.
template <int count>
struct PipelineState {
    int stage = 0, phase = 0;
    __device__ void next() {
        if (++stage == count) stage = 0, ++phase;
    }
    __device__ void skip(int steps) {
        phase += (stage + steps) / count;
        stage = (stage + steps) % count;
    }
};

// The residual of a tile is loaded by TMA into the stages that follow those of x and w, two chunks
// of 64 columns per stage, with one box per warpgroup for each chunk.
constexpr int kChunksPerStage = 2;

// Called by the producer thread. pipe: the next stage.
template <class Shared, int count>
__device__ void fetch_residual(Shared& shared, PipelineState<count>& pipe, const CUtensorMap& map,
                               int matrix, const int (&rows)[kConsumers], int unit, int chunks) {
    for (int n = 0; n < chunks; n += kChunksPerStage, pipe.next()) {
        Mbarrier& full = shared.full[pipe.stage];
        auto* const boxes = shared.stages[pipe.stage].x;
        const int there = smaller(chunks - n, kChunksPerStage) * kConsumers;
        shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
        full.arrive_expect_tx(there * kBox);
        for (int i = 0; i < there; ++i)
            tma_load(boxes + i * 64 * 64, map, unit + (n + i / kConsumers) * 64,
                     rows[i % kConsumers], matrix, full);
    }
}

// The consumer side of the residual. pipe: its first stage.
template <class Shared, int count>
struct Residual {
    Shared& shared;
    PipelineState<count> pipe;
    int group;

    // Waits for chunk n and returns its box. Chunks must be read in order.
    __device__ const auto* wait_for(int n) const {
        if (n % kChunksPerStage == 0) shared.full[pipe.stage].wait(pipe.phase % 2);
        return shared.stages[pipe.stage].x + (n % kChunksPerStage * kConsumers + group) * 64 * 64;
    }
    // Releases a stage to the producer when the warpgroup has read it.
    __device__ void release(int n, bool last) {
        if (n % kChunksPerStage != kChunksPerStage - 1 && !last) return;
        warpgroup_barrier(group);
        if (threadIdx.x % kWarpgroup == 0) shared.empty[pipe.stage].arrive();
        pipe.next();
    }
};

#endif
