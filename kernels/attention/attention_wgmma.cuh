// The wgmma versions of attention, forward, for 16-bit floats on GPUs of compute capability 9.0.
// TMA fills shared memory, and tensor cores read from there.
//
// A block has a producer warpgroup, whose first thread loads tiles of k and v two tiles ahead, and
// two or three consumer warpgroups with 64 rows of q each. Registers are reallocated from the
// producer to the consumers. The consumers run in ping-pong: while one multiplies, the next one
// computes its softmax.
//
// Blocks may be persistent: such a block has several tiles of rows, and the next tile is loaded
// during the epilogue of this one. The producer publishes in shared memory which tile it is.
//
// The work of packed sequences is not known beforehand, so their blocks draw tiles from a counter.
// A second warp of the producer warpgroup does so and finds the sequence, a few steps ahead; a
// third one zeroes the rows of v past the end of a sequence.
//
// TMA fills missing columns up to 64, 128 or 256 with zeros.
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

// A consumer warpgroup: 64 rows of each tile, in steps of kKeys keys. It skips steps whose keys
// none of its rows sees.
template <class T, int kCols, bool kOverlap, class Call>
class ForwardConsumer {
    using S = WgmmaForward<kCols, kOverlap, Call>;
    static constexpr int kKeys = S::kKeys;
    typename S::Shared& shared_;
    const ForwardMaps& maps_;
    const Call& whole_;
    T* const y_;
    float* const stats_;
    const int group_;
    const bool is_first_ = threadIdx.x % kWarpgroup == 0;
    const WarpSchedulerBarrier<S::kConsumers> scheduler_barrier_;
    PipelineState<S::kTiles> tile_;
    PipelineState<S::kStages> step_, before_;  // stages of this step and of the previous one
    int key_;                                  // the first key of this step
    int top_;                                  // the first row
    int first_, last_;   // all of them see the keys from first on and before last
    int own_end_, end_;  // none of them sees keys from own_end on; no row of the tile, from end
    float accum_[kCols / 2] = {}, scores_[kKeys / 2], factor_[2];
    uint32_t weights_[kKeys / 4], q_[S::kKeepsQ ? kCols / 4 : 1];
    RowsTile<Call> q_tile_;  // the tile of q_
    int slot_ = 0;           // where shared memory says so, if sequences are packed
    RowsSoftmax soft_;

  public:
    __device__ ForwardConsumer(typename S::Shared& shared, const ForwardMaps& maps,
                               const Call& whole, T* y, float* stats, int group)
        : shared_(shared),
          maps_(maps),
          whole_(whole),
          y_(y),
          stats_(stats),
          group_(group),
          scheduler_barrier_(group) {}

    // Scores, softmax and the product with v, one after the other.
    __device__ void run_ping_pong() {
        for (bool has_tile = take_tile(); has_tile; has_tile = next_tile()) {
            while (key_ < own_end_) {
                start_scores();
                end_scores<0>();
                scheduler_barrier_.pass();
                compute_p();
                scale_rows(accum_, factor_);
                as_factor<T>(weights_, scores_);
                next_step();
                multiply_last_values();
            }
            epilogue(tile_.stage);
            leave_steps();
        }
        wait_for_stores();
    }

    // Overlaps the softmax of a step with the product with v of the previous step; with kGoesOn
    // also across tiles.
    __device__ void run_overlapped() {
        bool goes_on =
            false;  // whether the previous tile, in this stage, still needs its last product
        int stage = 0;
        for (bool has_tile = take_tile(); has_tile; has_tile = next_tile()) {
            if (key_ >= own_end_) {  // these rows see nothing
                if (goes_on) end_tile(stage);
                goes_on = false;
                epilogue(tile_.stage);
                leave_steps();
                continue;
            }
            if (goes_on) {
                first_step_beside(stage);
            } else {
                first_step();
            }
            while (key_ < own_end_) further_step();
            if constexpr (S::kGoesOn) {
                goes_on = true, stage = tile_.stage;
            } else {
                end_tile(tile_.stage);
            }
            leave_steps();
        }
        if (goes_on) end_tile(stage);
        wait_for_stores();
    }

  private:
    // Waits until the buffer of y, or at the end the shared memory of the block, is free.
    __device__ void wait_for_stores() const {
        if (S::kKeepsQ && is_first_) tma_store_wait_read<0>();
    }

    __device__ void release(Mbarrier& empty) const {
        if (is_first_) empty.arrive();
    }
    __device__ char* rows_of(int stage) const { return shared_.q[stage] + group_ * box_bytes(64); }

    // The published tile in this stage.
    __device__ const RowsTile<Call>& tile_of(int stage) const {
        return shared_.tiles[S::kTileSlots == S::kTiles ? stage : slot_];
    }

    // Waits for the next tile of rows; false if there is none.
    __device__ bool take_tile() {
        shared_.q_full[tile_.stage].wait(tile_.phase);
        const RowsTile<Call> tile = tile_of(tile_.stage);
        if (tile.is_none()) return false;
        const auto& a = whole_.with(tile);
        if constexpr (S::kKeepsQ) {
            keep_rows<S::kRows, kCols>(q_, shared_.q[tile_.stage]);
            q_tile_ = tile;
            __syncwarp();
            if (threadIdx.x % kWarp == 0) shared_.q_empty[tile_.stage].arrive();
        }
        top_ = tile.row + group_ * 64, key_ = tile.begin, end_ = tile.end;
        first_ = int(a.first_key(top_ + 63)), last_ = int(a.end_key(top_));
        own_end_ = top_ < a.rows ? smaller(end_, int(a.end_key(top_ + 63))) : 0;
        // Rows of the next sequence see nothing: their values must not decide how a warp rounds.
        if (Call::kPacked && top_ + 64 > a.rows) last_ = 0;
        return true;
    }
    __device__ bool next_tile() {
        if (!S::kHasSeveral) return false;
        tile_.next();
        slot_ ^= 1;
        return take_tile();
    }

    __device__ void first_step() {
        start_scores();
        scheduler_barrier_.pass();
        end_scores<0>();
        compute_p();
        as_factor<T>(weights_, scores_);
        next_step();
    }
    // The same, overlapped with the end of the previous tile, in that stage.
    __device__ void first_step_beside(int stage) {
        start_scores();
        start_values();
        scheduler_barrier_.pass();
        end_scores<1>();
        end_values();
        epilogue(stage);
        compute_p();
        as_factor<T>(weights_, scores_);
        next_step();
    }
    __device__ void further_step() {
        start_scores();
        start_values();
        scheduler_barrier_.pass();
        end_scores<1>();
        compute_p();
        end_values();
        scale_rows(accum_, factor_);
        as_factor<T>(weights_, scores_);
        next_step();
    }
    __device__ void end_tile(int stage) {
        multiply_last_values();
        epilogue(stage);
    }

    __device__ void next_step() {
        before_ = step_;
        step_.next();
        key_ += kKeys;
    }
    // Skips the remaining steps. After own ones there is at most one, so there is a stage for its v
    // beside the one that is still to be multiplied.
    static_assert(64 * (S::kConsumers - 1) <= kKeys && S::kStages > 1);
    __device__ void leave_steps() {
        for (; key_ < end_; key_ += kKeys, step_.next()) {
            shared_.k_full[step_.stage].wait(step_.phase);
            release(shared_.k_empty[step_.stage]);
            scheduler_barrier_.wait();
            scheduler_barrier_.pass();
            shared_.v_full[step_.stage].wait(step_.phase);
            release(shared_.v_empty[step_.stage]);
        }
    }

    __device__ void start_scores() {
        shared_.k_full[step_.stage].wait(step_.phase);
        scheduler_barrier_.wait();
        wgmma_fence();
        if constexpr (S::kKeepsQ) {
            start_kept_rows<T, kCols>(scores_, q_, shared_.k[step_.stage]);
        } else {
            start_rows<T, kCols, S::kRows>(scores_, rows_of(tile_.stage), shared_.k[step_.stage]);
        }
    }
    // pending: later products, which may still run.
    template <int pending>
    __device__ void end_scores() {
        wgmma_wait<pending>();
        release(shared_.k_empty[step_.stage]);
    }
    __device__ void compute_p() {
        if (key_ < first_ || key_ + kKeys > last_) {
            const Limits limits(whole_.with(tile_of(tile_.stage)), top_ + accum_row(0), key_);
            keep_columns(scores_, limits.begin, limits.end, -INFINITY);
        }
        soft_.template take<S::kKeepsQ ? 4 : 1>(scores_, float(whole_.scale) * kLog2E, factor_);
    }

    __device__ void start_values() {
        shared_.v_full[before_.stage].wait(before_.phase);
        start_columns<T, kKeys>(accum_, weights_, shared_.v[before_.stage]);
    }
    __device__ void end_values() {
        wgmma_wait<0>();
        release(shared_.v_empty[before_.stage]);
    }

    __device__ void multiply_last_values() {
        shared_.v_full[before_.stage].wait(before_.phase);
        wgmma_fence();
        start_columns<T, kKeys>(accum_, weights_, shared_.v[before_.stage]);
        end_values();
    }

    // Writes y of the tile in that stage, through the shared memory of its q or the buffer of y,
    // and resets the accumulators.
    __device__ void epilogue(int stage) {
        const RowsTile<Call> tile = S::kKeepsQ && !Call::kPacked ? q_tile_ : tile_of(stage);
        const auto& a = whole_.with(tile);
        char* const place = rows_of(S::kKeepsQ ? S::kTiles : stage);
        const int top = tile.row + group_ * 64;
        if constexpr (S::kKeepsQ) {
            wait_for_stores();
            warpgroup_barrier(group_);
        }
        float share[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const Place place = {tile.batch, tile.head, top + accum_row(2 * half)};
            share[half] = finalize_row(a, soft_, half, place, stats_);
        }
        if (Call::kPacked && top + 64 > a.rows) {
            write_tail(y_ + a.at(a.y, {tile.batch, tile.head, top}), accum_, share, a.rows - top,
                       a.y.row, a.cols);
        } else {
            scale_rows(accum_, share);
            accum_to_shared<T, S::kRows>(place, accum_);
            tma_writes_done();
        }
        soft_ = RowsSoftmax();
#pragma unroll
        for (int i = 0; i < kCols / 2; ++i) accum_[i] = 0;
        warpgroup_barrier(group_);
        if (!is_first_) return;
        if (top < a.rows && !(Call::kPacked && top + 64 > a.rows)) {
            store_rows<S::kRows, kCols>(
                maps_.y, place, a.cols, a.row_coordinate(top), tile.head, tile.batch);
        }
        if constexpr (!S::kKeepsQ) {
            tma_store_wait_read<0>();
            shared_.q_empty[stage].arrive();
        }
    }
};

#endif

template <class T, int kCols, bool kOverlap, class Call>
__global__ WGMMA_KERNEL((WgmmaForward<kCols, kOverlap, Call>::kThreads)) void forward_wgmma(
    const __grid_constant__ ForwardMaps maps, const __grid_constant__ Call whole,
    ForwardScheduler<Call> scheduler, T* y, float* stats) {
#if HAS_WGMMA
    using S = WgmmaForward<kCols, kOverlap, Call>;
    extern __shared__ char memory[];
    auto& shared = begin_block<typename S::Shared>(memory);
    const int group = warpgroup_number();
    if (group == S::kConsumers) {
        warpgroup_reg_dealloc<S::kProducerRegisters>();
        const int thread = threadIdx.x % kWarpgroup;
        if constexpr (Call::kPacked) {
            if (thread == 0) produce_packed<S, kCols>(shared, maps, whole);
            if (thread == kWarp) schedule_packed<S>(shared, whole, scheduler);
            if (thread / kWarp == 2) clear_tails<S, kCols>(shared);
        } else {
            if (thread == 0) produce_forward<S, kCols>(shared, maps, whole, scheduler);
        }
        return;
    }
    warpgroup_reg_alloc<S::kConsumerRegisters>();
    ForwardConsumer<T, kCols, kOverlap, Call> rows(shared, maps, whole, y, stats, group);
    if constexpr (kOverlap) {
        rows.run_overlapped();
    } else {
        rows.run_ping_pong();
    }
#endif
}

// ---- on the host

// False if this GPU or TMA does not allow it.
template <class T, int kCols, bool kOverlap, class Call>
bool launch_forward_wgmma(const Call& a, const T* q, const T* k, const T* v, T* y, float* stats,
                          cudaStream_t stream) {
    using S = WgmmaForward<kCols, kOverlap, Call>;
    const auto kernel = forward_wgmma<T, kCols, kOverlap, Call>;
    if (a.keys == 0 || !has_wgmma(kernel, S::kThreads) || S::kBytes > shared_bytes()) return false;
    ForwardMaps maps;
    if (!map_rows(maps.q, q, a.batches, a.heads, a.all_rows(), a.cols, a.q, S::kRows) ||
        !map_rows(maps.k, k, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, a.k, S::kKeys) ||
        !map_rows(maps.v, v, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, a.v, S::kKeys) ||
        !map_rows(maps.y, y, a.batches, a.heads, a.all_rows(), a.cols, a.y))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
    // At 64 columns causal tiles are not paired, and several abreast are slower.
    const int abreast = kCols == 128 && !Call::kPacked ? 4 : 1;
    const TileScheduler scheduler = scheduler_of<kCols>(
        a, a.slices(), a.row_tiles(S::kRows), S::kRows, a.keys, a.group(), abreast);
    if constexpr (Call::kPacked) {
        const DynamicTileScheduler dynamic = {
            scheduler.tiles, scheduler.slices, scheduler.at_once, scheduler.slices};
        const int blocks =
            S::kHasSeveral ? smaller(dynamic.count(), multiprocessors()) : dynamic.count();
        launch_secondary(
            kernel, 1, blocks, S::kThreads, S::kBytes, stream, maps, a, dynamic, y, stats);
    } else {
        kernel<<<scheduler.blocks, S::kThreads, S::kBytes, stream>>>(maps, a, scheduler, y, stats);
    }
    return true;
}
