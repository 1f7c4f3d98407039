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

// In scratch memory, for each tile of 64 rows of a slice and each 64 columns: the float
// accumulators of dq, number i of thread t at i / 4 * 4 * kWarpgroup + 4 * t + i % 4, and a
// semaphore that counts the tiles of keys that have been added. Semaphores start at 0.
struct DqAccum {
    static constexpr int kPart = 64,
                         kNumbers = kPart * kPart;  // columns and floats of an accumulator
    float* values;
    int* semaphores;
    int* tile_counter;  // of the scheduler

    // Scratch ints: one semaphore per tile of accumulators and one tile counter.
    static int64_t ints(int64_t tiles, int cols) { return tiles * (cols / kPart) + 1; }
};

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
__device__ void with_tile_of_keys(const Call& whole, const DynamicTileScheduler& scheduler,
                                  int tile_index, F f) {
    int64_t tile, slice;
    scheduler.find(tile_index, tile, slice);
    const auto& a = whole.of_keys(tile, kKeys);
    const int key = int(tile) * kKeys;
    if (!Call::kPacked || key < a.keys) f(a, slice, key, steps_of_rows<kKeys, kRows>(a, key));
}

// Calls f(place) for each step of such a tile: the last rows of all slices of q that share k and v,
// then the rows before.
template <int kRows, class Call, class F>
__device__ void for_each_step(const Call& a, int64_t slice, Steps steps, F f) {
    const Place first = a.q_place(slice, 0, 0);
    const int head = int(first.head), group = int(a.group()), batches = int(a.batches);
    for (int row = (steps.high - 1) * kRows; row >= steps.low * kRows; row -= kRows) {
        for (int batch = int(first.batch); batch < batches; batch += int(a.kv_batches)) {
            for (int i = 0; i < group; ++i) f(Place{batch, head + i, row});
        }
    }
}

#endif

constexpr int kConvertThreads = 256;

// Scales and rounds the accumulators to dq. A block has 64 rows of a slice, as in row_infos; a
// thread has eight columns of two of them.
template <class T, int kCols, class Call>
__global__ __launch_bounds__(kConvertThreads) void convert_dq(Call whole, DqAccum dq_accum, T* dq) {
    constexpr int kChunks = kCols / 8, kInPart = DqAccum::kPart / 8;
    const int64_t slice = blockIdx.x % whole.slices();
    int64_t tile = blockIdx.x / whole.slices();
    const int64_t first = (slice * whole.row_tiles(64) + tile) * (kCols / DqAccum::kPart);
    const auto& a = whole.of_rows(tile, 64);
    const float scale = float(a.scale);
    Place place = a.place(slice);
#pragma unroll
    for (int n = threadIdx.x; n < kChunks * 32; n += kConvertThreads) {
        const int chunk = n % kChunks, lanes = n / kChunks * 4;  // of four lanes
        const int64_t at = first + chunk / kInPart;
        const float* const from =
            dq_accum.values + at * DqAccum::kNumbers + (chunk % kInPart * kWarpgroup + lanes) * 4;
        Vec<T, 8> rows[2] = {};
        if (dq_accum.semaphores[at] > 0) {
#pragma unroll
            for (int i = 0; i < 16; i += 4) {
                const Vec<float, 4> four = load<4>(from + i);
                for (int k = 0; k < 4; ++k) rows[k / 2][i / 2 + k % 2] = T(four[k] * scale);
            }
        }
        for (int half = 0; half < 2 && chunk * 8 < a.cols; ++half) {
            place.row = tile * 64 + lanes / 32 * 16 + lanes % 32 / 4 + half * 8;
            if (place.row < a.rows) store(dq + a.at(a.dq, place) + chunk * 8, rows[half]);
        }
    }
}
