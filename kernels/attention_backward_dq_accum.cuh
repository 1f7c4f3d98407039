// How blocks of a backward pass with five products add to the same sums of dq. The bits of a sum
// depend on the order of its terms. So the tiles of keys that add to a tile of rows take turns, the
// first one first: a counter says whose turn it is. A block may only wait for blocks that run
// already, whatever else is on the GPU. So it finds out which tile it has by a ticket, which it
// takes when it starts with one: it waits for lower tickets alone.
//
// The steps begin with the last rows. Where it is causal those see all keys: blocks that start
// together begin together, each a turn behind the one before.
#pragma once

#include "attention_backward_pipeline.cuh"

// In scratch memory, for each tile of 64 rows of a slice and each 64 of its columns: the sums of
// dq, number i of thread t at i / 4 * 4 * kWarpgroup + 4 * t + i % 4, and how many tiles of keys
// have added to them. The counters are 0 at first.
struct DqAccum {
    static constexpr int kPart = 64, kNumbers = kPart * kPart;  // columns and numbers of one
    float* values;
    int* semaphores;
    int* tile_counter;  // of the scheduler

    // Of so many tiles: counters and tickets.
    static int64_t ints(int64_t tiles, int cols) { return tiles * (cols / kPart) + 1; }
};

#if HAS_WGMMA

// Orders copies by TMA to global memory with the loads and stores of a thread, which order those
// of different blocks.
__device__ inline void fence_global_copies() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
// A thread waits for its turn to add to some sums, and passes it on when they have what it added.
__device__ inline void semaphore_wait(const int* counter, int turn) {
    int now;
    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while (now != turn);
    fence_global_copies();
}
__device__ inline void semaphore_release(int* counter, int turn) {
    tma_store_wait();
    fence_global_copies();
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(counter), "r"(turn + 1) : "memory");
}

// Adds what shared memory has for sums number `at`, when it is this tile's turn.
__device__ inline void add_in_order(const DqAccum& to, int64_t at, int turn, const float* from) {
    constexpr int bytes = DqAccum::kNumbers * sizeof(float);
    if (turn == 0) {
        bulk_store(to.values + at * DqAccum::kNumbers, from, bytes);
    } else {
        semaphore_wait(to.semaphores + at, turn);
        bulk_add(to.values + at * DqAccum::kNumbers, from, bytes);
    }
    semaphore_release(to.semaphores + at, turn);
}

// Calls f(attention, slice, key, steps) for the tile of a ticket, if it has keys.
template <int kKeys, int kRows, class Call, class F>
__device__ void with_tile_of_keys(const Call& whole, const DynamicTileScheduler& scheduler,
                                  int tile_index, F f) {
    int64_t tile, slice;
    scheduler.find(tile_index, tile, slice);
    const auto& a = whole.of_keys(tile, kKeys);
    const int key = int(tile) * kKeys;
    if (!Call::kPacked || key < a.keys) f(a, slice, key, steps_of_rows<kKeys, kRows>(a, key));
}

// Calls f(place) for each step of such a tile: the last rows of all sharers, then those before.
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

// A block has 64 rows of a slice, as in row_infos. A thread has eight columns of two of them.
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
        const int chunk = n % kChunks, lanes = n / kChunks * 4;  // from this lane on, four
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
