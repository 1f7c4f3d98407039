// Stages of shared memory, which TMA fills and threads read, again and again.
#pragma once

#include "tma.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Initialises the barriers of a block's stages: a stage is full when what one thread has expected
// is there, and empty when `readers` have read it. One thread calls this, before a barrier of the
// block or of the cluster.
template <class Shared>
__device__ void init_stages(Shared& shared, int readers) {
    for (Mbarrier& full : shared.full) full.init();
    for (Mbarrier& empty : shared.empty) empty.init(readers);
}

// Blocks in pairs, clusters of two, which read something in common: each asks TMA for half of it,
// for both. A kernel for pairs may be compiled for blocks that are alone, too. blocks: 1 or 2.
template <int blocks>
struct Pair {
    static constexpr unsigned kAll = blocks == 1 ? 0 : (1 << blocks) - 1;  // as multicast takes it
    const int rank = blockIdx.x % blocks;                                  // of this block in it
    const int index = blockIdx.x / blocks, count = gridDim.x / blocks;     // of all pairs

    // Returns when both have initialised their barriers.
    __device__ void begin() const {
        if constexpr (blocks == 1) {
            __syncthreads();
        } else {
            meet();
        }
    }

    // A block ends with this: the other one's copies and arrivals must find its memory.
    __device__ void end() const {
        if constexpr (blocks > 1) meet();
    }

    // What both have filled is read: says so to both. thread: of the warpgroup that has read it.
    __device__ void is_read(Mbarrier& empty, int thread) const {
        if constexpr (blocks == 1) {
            if (thread == 0) empty.arrive();
        } else {
            if (thread < blocks) empty.arrive_in(thread);
        }
    }

    // Asks for this block's share of a tile of `rows` rows, from `row` of the matrix on, for both.
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
