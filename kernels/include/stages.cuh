// The pipeline of stages in shared memory between a TMA producer and its consumers.
#pragma once

#include "tma.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Initialises the barriers of the stages: `full` completes when the producer's loads have arrived,
// `empty` when `readers` consumers have released the stage. Called by one thread, before a barrier
// of the block or of the cluster.
template <class Shared>
__device__ void init_pipeline(Shared& shared, int readers) {
    for (Mbarrier& full : shared.full) full.init();
    for (Mbarrier& empty : shared.empty) empty.init(readers);
}

// A pair of blocks, a cluster of two, that share an operand: each loads half of it and multicasts
// it to both. With blocks = 1 the same kernel runs without clusters.
template <int blocks>
struct Pair {
    static constexpr unsigned kAll = blocks == 1 ? 0 : (1 << blocks) - 1;  // the multicast mask
    const int rank = blockIdx.x % blocks;                                  // of this block in it
    const int index = blockIdx.x / blocks, count = gridDim.x / blocks;     // of all pairs

    // Returns when both blocks have initialised their barriers.
    __device__ void begin() const {
        if constexpr (blocks == 1) {
            __syncthreads();
        } else {
            meet();
        }
    }

    // Called at the end of a kernel: copies and arrivals of the other block must still find this
    // block's shared memory.
    __device__ void end() const {
        if constexpr (blocks > 1) meet();
    }

    // Releases a stage to the producers of both blocks. thread: of the warpgroup that has read it.
    __device__ void consumer_release(Mbarrier& empty, int thread) const {
        if constexpr (blocks == 1) {
            if (thread == 0) empty.arrive();
        } else {
            if (thread < blocks) empty.arrive_in(thread);
        }
    }

    // Loads this block's part of a tile of `rows` rows, from `row` of the matrix on, for both
    // blocks.
    template <int rows>
    __device__ void fetch(void* tile, const CUtensorMap& map, int column, int row,
                          Mbarrier& full) const {
        if constexpr (blocks == 1) {
            tma_load(tile, map, column, row, 0, full);
        } else {
            const int first = rank * (rows / blocks);
            tma_load_multicast(static_cast<char*>(tile) + first * kTileRow, map, column,
                               row + first, 0, full, kAll);
        }
    }

  private:
    __device__ static void meet() {
        cluster_arrive();
        cluster_wait();
    }
};

#endif
