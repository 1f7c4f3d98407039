// How the blocks of the fused backward pass accumulate dq, deterministically. The bits of a sum
// depend on the order of its terms, so the tiles of keys add to a tile of rows in a fixed order,
// the first one first, by a semaphore. A block may only wait for blocks that are already running.
// So blocks draw their tiles from a counter (DynamicTileScheduler) when they start, and wait for
// lower tiles only.
//
// The steps begin with the last rows. In causal attention those see all keys: blocks that start
// together begin together, each one step behind the one before.
#pragma once

#include "attention_backward_pipeline.cuh"

#if HAS_WGMMA

// Orders TMA copies to global memory with the loads and stores of this thread.
__device__ inline void fence_global_copies() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
// Waits until a semaphore has this value, and releases it to the next tile.
__device__ inline void semaphore_wait(const int* semaphore, int position) {
    int now;
    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(semaphore) : "memory");
    } while (now != position);
    fence_global_copies();
}
__device__ inline void semaphore_release(int* semaphore, int position) {
    tma_store_wait();
    fence_global_copies();
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(semaphore), "r"(position + 1)
                 : "memory");
}

// Adds a tile from shared memory to accumulator `at` when all tiles before it have been added.
__device__ inline void add_in_order(const DqAccum& to, int64_t at, int position,
                                    const float* from) {
    constexpr int bytes = DqAccum::kNumbers * sizeof(float);
    if (position == 0) {
        bulk_store(to.values + at * DqAccum::kNumbers, from, bytes);
    } else {
        semaphore_wait(to.semaphores + at, position);
        bulk_add(to.values + at * DqAccum::kNumbers, from, bytes);
    }
    semaphore_release(to.semaphores + at, position);
}

// Calls f(attention, slice, key, steps) for a tile of the scheduler, if it has keys.
template <int kKeys, int kRows, class Call, class F>
__device__ void with_drawn_tile(const Call& whole, const DynamicTileScheduler& scheduler,
                                const KvSplit& kv, int tile_index, F f) {
    int64_t tile, n;
    scheduler.find(tile_index, tile, n);
    with_tile_of_keys<kKeys, kRows>(whole, scheduler.tiles, kv, tile, n, f);
}

#endif
