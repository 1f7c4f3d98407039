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

#include "attention_wgmma_producer.cuh"

#if HAS_WGMMA

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
