// The wgmma versions of attention, forward: what a block has in shared memory, and its producer
// warpgroup, which loads tiles by TMA and schedules packed sequences.
#pragma once

#include <type_traits>

#include "attention_wgmma_tiles.cuh"
#include "dependent_launch.cuh"

struct ForwardMaps {
    CUtensorMap q, k, v, y;
};

// A tile of rows, as the producer publishes it to the consumers. Its rows see keys from `begin` on,
// a multiple of kKeys, and before `end`.
template <class Call>
struct RowsTile : Call::Sequence {
    int batch, head, row, begin, end;
    __device__ static RowsTile none() { return {{}, 0, 0, -1, 0, 0}; }
    __device__ bool is_none() const { return row < 0; }
};

// What the warps of the producer warpgroup tell each other about packed sequences: the next tile of
// rows, and where v has rows past the end of a sequence.
template <bool kPacked>
struct ForwardHelpers {
    __device__ void init() {}
};
template <>
struct ForwardHelpers<true> {
    Mbarrier ready[2], wanted;  // a tile of rows, and the next one
    int tail_stage, tail_begin;
    Mbarrier tail_full, tail_empty;
    __device__ void init() {
        ready[0].init(), ready[1].init(), wanted.init(), tail_full.init(), tail_empty.init();
    }
    __device__ void publish_tail(int stage, int begin, int& phase) {
        tail_empty.wait(phase ^ 1);
        phase ^= 1, tail_stage = stage, tail_begin = begin;
    }
};

template <int kCols, bool kOverlap, class Call>
struct WgmmaForward {
    static constexpr int kConsumers = kCols > 64 ? 2 : 3;
    static constexpr int kThreads = kWarpgroup * (kConsumers + 1);
    static constexpr int kRows = 64 * kConsumers, kKeys = kCols > 128 ? 64 : 128;
    static constexpr int kStages = kCols > 64 ? 2 : 3;
    // Whether q stays in registers: products then read a third less of shared memory for the
    // scores, and the shared memory of q is free for the next tile. y has a buffer of its own. Only
    // where the weights of one step exist beside the scores of the next: otherwise ptxas (13.0)
    // gives both the same registers in one of the kernels, although q is needed in the next step.
    static constexpr bool kKeepsQ = kCols == 128 && kOverlap;
    static constexpr int kTiles =
        kCols > 128 || kKeepsQ ? 1 : 2;  // of q, the second for the next tile
    static constexpr int kReadersOfQ = kKeepsQ ? kConsumers * (kWarpgroup / kWarp) : kConsumers;
    // Whether the last product with v of a tile overlaps with the first scores of the next tile.
    // Above 64 columns that was slower.
    static constexpr bool kGoesOn = kCols <= 64;
    // Whether blocks are persistent. Above 128 columns shared memory has no room for two tiles.
    static constexpr bool kHasSeveral = kCols <= 128;
    // Slots for published tiles. If q stays in registers, the shared memory of the next q is free
    // before a tile ends, but not the slot of the tile.
    static constexpr int kTileSlots = Call::kPacked && kKeepsQ ? 2 : kTiles;
    static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;  // of a consumer thread
    static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;    // of a producer thread
    static constexpr int kQBytes = tile_bytes(kRows, kCols), kKBytes = tile_bytes(kKeys, kCols);
    struct Shared {
        char q[kTiles + kKeepsQ][kQBytes];  // in the epilogue y; or the last one is the buffer of y
        char k[kStages][kKBytes], v[kStages][kKBytes];
        RowsTile<Call> tiles[kTileSlots];
        Mbarrier q_full[kTiles], q_empty[kTiles];
        Mbarrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
        ForwardHelpers<Call::kPacked> helpers;
        __device__ void init() {
            helpers.init();
            for (int i = 0; i < kTiles; ++i) q_full[i].init(), q_empty[i].init(kReadersOfQ);
            for (int i = 0; i < kStages; ++i) {
                k_full[i].init(), k_empty[i].init(kConsumers);
                v_full[i].init(), v_empty[i].init(kConsumers);
            }
        }
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

template <class Call>
using ForwardScheduler = std::conditional_t<Call::kPacked, DynamicTileScheduler, TileScheduler>;

#if HAS_WGMMA

// The scheduler warp: draws tiles from the counter and publishes those that have rows. It draws the
// next one only when all of this tile has been requested: then a few steps are left, which is
// enough to find a tile, and no block holds one that another could begin.
template <class S>
__device__ void schedule_packed(typename S::Shared& shared, const PackedAttention& whole,
                                const DynamicTileScheduler& scheduler) {
    PipelineState<S::kTiles> q_pipe;
    PipelineState<S::kTileSlots> tile_pipe;
    const auto publish = [&](const RowsTile<PackedAttention>& tile) {
        shared.q_empty[q_pipe.stage].wait(q_pipe.phase ^ 1);
        shared.tiles[tile_pipe.stage] = tile;
        shared.helpers.ready[tile_pipe.stage].arrive();
        q_pipe.next(), tile_pipe.next();
    };
    grid_dependency_wait();
    int wanted = 0;  // phase
    for (int tile_index = blockIdx.x; tile_index < scheduler.count();) {
        int64_t tile, slice;
        scheduler.find(tile_index, tile, slice);
        tile = scheduler.tiles - 1 - tile;  // in causal attention the last tiles have the most work
        const PackedAttention a = whole.of_rows(tile, S::kRows);
        const int row = int(tile) * S::kRows;
        if (row < a.rows) {
            const int begin = int(a.first_key(row)) / S::kKeys * S::kKeys;
            const int end = int(a.end_key(smaller<int64_t>(row + S::kRows, a.rows) - 1));
            publish({a.sequence(), 0, int(slice), row, begin, end});
            shared.helpers.wanted.wait(wanted);
            wanted ^= 1;
        }
        if (!S::kHasSeveral) break;
        tile_index = gridDim.x + atomicAdd(whole.tile_counter, 1);
    }
    publish(RowsTile<PackedAttention>::none());
}

// A warp that zeroes the rows of v past the end of a sequence before the consumers see them.
template <class S, int kCols>
__device__ void clear_tails(typename S::Shared& shared) {
    auto& helpers = shared.helpers;
    for (int phase = 0;; phase ^= 1) {
        helpers.tail_full.wait(phase);
        const int stage = helpers.tail_stage, lane = threadIdx.x % kWarp;
        if (stage < 0) return;
        clear_share<S::kKeys, kCols, kWarp>(shared.v[stage], helpers.tail_begin, lane);
        __syncwarp();
        if (lane == 0) shared.v_full[stage].arrive(), helpers.tail_empty.arrive();
    }
}

// The producer: loads the tiles of rows of a block, and the keys that each of them sees.
template <class S, int kCols>
__device__ void produce_forward(typename S::Shared& shared, const ForwardMaps& maps,
                                const Attention& whole, const TileScheduler& scheduler) {
    PipelineState<S::kTiles> q_pipe;
    PipelineState<S::kStages> pipe;
    const auto publish = [&](const RowsTile<Attention>& tile) {
        shared.q_empty[q_pipe.stage].wait(q_pipe.phase ^ 1);
        shared.tiles[q_pipe.stage] = tile;
    };
    const auto fetch = [&](const auto& a, Place place, int begin, int end) {
        const int64_t head = place.head / a.group(), batch = place.batch % a.kv_batches;
        publish({{}, int(place.batch), int(place.head), int(place.row), begin, end});
        if constexpr (S::kKeepsQ)
            tma_writes_done();  // orders the threads' reads of q before the load
        load_tile<S::kRows, kCols>(shared.q[q_pipe.stage], maps.q, a.row_coordinate(place.row),
                                   place.head, place.batch, shared.q_full[q_pipe.stage]);
        q_pipe.next();
        for (int key = begin; key < end; key += S::kKeys, pipe.next()) {
            const int i = pipe.stage, row = a.key_coordinate(key);
            shared.k_empty[i].wait(pipe.phase ^ 1);
            load_tile<S::kKeys, kCols>(shared.k[i], maps.k, row, head, batch, shared.k_full[i]);
            shared.v_empty[i].wait(pipe.phase ^ 1);
            load_tile<S::kKeys, kCols>(shared.v[i], maps.v, row, head, batch, shared.v_full[i]);
        }
    };
    for_each_tile_of_rows<S::kRows, S::kKeys>(whole, scheduler, fetch);
    publish(RowsTile<Attention>::none());
    shared.q_full[q_pipe.stage].arrive();
}

// The producer for packed sequences: loads the tiles that the scheduler warp publishes.
template <class S, int kCols>
__device__ void produce_packed(typename S::Shared& shared, const ForwardMaps& maps,
                               const PackedAttention& whole) {
    PipelineState<S::kTileSlots> tile_pipe;
    PipelineState<S::kTiles> q_pipe;
    PipelineState<S::kStages> pipe;
    int tails = 0;  // phase
    const int group = int(whole.group());
    while (true) {
        shared.helpers.ready[tile_pipe.stage].wait(tile_pipe.phase);
        const RowsTile<PackedAttention> tile = shared.tiles[tile_pipe.stage];
        if (tile.is_none()) break;
        if constexpr (S::kKeepsQ)
            tma_writes_done();  // orders the threads' reads of q before the load
        load_tile<S::kRows, kCols>(shared.q[q_pipe.stage], maps.q, tile.row_begin + tile.row,
                                   tile.head, 0, shared.q_full[q_pipe.stage]);
        const int head = tile.head / group, begin = tile.key_begin;
        const int end = begin + tile.end, keys_end = begin + tile.keys;
#pragma unroll 1
        for (int key = begin + tile.begin; key < end; key += S::kKeys, pipe.next()) {
            const int i = pipe.stage;
            shared.k_empty[i].wait(pipe.phase ^ 1);
            load_tile<S::kKeys, kCols>(shared.k[i], maps.k, key, head, 0, shared.k_full[i]);
            shared.v_empty[i].wait(pipe.phase ^ 1);
            Mbarrier* full = &shared.v_full[i];
            if (key + S::kKeys > keys_end) {
                shared.helpers.publish_tail(i, keys_end - key, tails);
                full = &shared.helpers.tail_full;
            }
            load_tile<S::kKeys, kCols>(shared.v[i], maps.v, key, head, 0, *full);
        }
        shared.helpers.wanted.arrive();
        tile_pipe.next(), q_pipe.next();
    }
    shared.helpers.publish_tail(-1, 0, tails);
    shared.helpers.tail_full.arrive();
    shared.q_full[q_pipe.stage].arrive();
}

#endif
