// The fused backward pass by wgmma for up to 64 columns: dq, dk and dv in one kernel. As for more
// columns (attention_backward_fused_d128.cuh) a block has a tile of keys and adds to float
// accumulators of dq. But a step has 128 rows, so that each warpgroup has all columns of dq for
// half of them, because products with fewer columns are bound by shared memory. And blocks are
// persistent: during the epilogue of a tile, k and v of the next one and its first rows are loaded.
#pragma once

#include "attention_backward_fused_step.cuh"

template <int kCols>
struct FusedBackwardD64 {
    static constexpr int kConsumers = 2, kThreads = kWarpgroup * (kConsumers + 1);
    static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
    static constexpr int kBlock = 64 * kConsumers;  // keys of a tile
    static constexpr int kRows = 128;               // of a step
    static constexpr int kTiles = 2, kStages = 2;   // of k and v, and of q and g
    // A warpgroup has half of the rows of dq of a step, and all columns. kDsOfGroup: the offset
    // from the ds of one half to the other.
    static constexpr int kOut = kCols, kDsOfGroup = box_bytes(kBlock);
    static constexpr bool kPersistent = true;
    static constexpr int kBlockBytes = tile_bytes(kBlock, kCols),
                         kStepBytes = tile_bytes(kRows, kCols);
    struct Shared {
        char x[kTiles][2][kBlockBytes];         // k and v, in the epilogue their gradients
        char w[kStages][2][kStepBytes];         // q and g
        char ds[2][tile_bytes(kBlock, kRows)];  // [keys, rows], double buffered
        float dq[kConsumers][DqAccum::kNumbers];
        RowInfo infos[kStages][kRows];
        int tile_indices[2];
        Mbarrier tile_index_full[2], tile_index_empty[2];
        Mbarrier x_full[kTiles], x_empty[kTiles], w_full[kStages], w_empty[kStages];
        Mbarrier dq_full[kConsumers], dq_empty[kConsumers];
        __device__ void init() {
            for (int i = 0; i < 2; ++i) {  // read by consumers and by the threads that add
                tile_index_full[i].init(), tile_index_empty[i].init(2 * kConsumers);
            }
            for (int i = 0; i < kTiles; ++i) x_full[i].init(), x_empty[i].init(kConsumers);
            for (int i = 0; i < kStages; ++i) w_full[i].init(), w_empty[i].init(kConsumers);
            for (int part = 0; part < kConsumers; ++part)
                dq_full[part].init(kWarpgroup / kWarp), dq_empty[part].init();
        }
    };
    // Dynamic shared memory begins aligned, as the kernel has no static shared memory. There is no
    // room for alignment.
    static constexpr int kBytes = sizeof(Shared);
};

#if HAS_WGMMA

// The producer thread draws tiles, publishes their indices, and loads k and v of each tile and q
// and g of each step.
template <int kCols, class Shared, class Call>
__device__ void produce_tiles(Shared& shared, const BackwardMaps& maps, const Call& whole,
                              const DynamicTileScheduler& scheduler, const KvSplit& kv,
                              const RowInfo* infos, int* tile_counter) {
    using S = FusedBackwardD64<kCols>;
    PipelineState<2> tile_index_pipe;
    PipelineState<S::kTiles> tiles;
    PipelineState<S::kStages> pipe;
    while (true) {
        const int tile_index = atomicAdd(tile_counter, 1);
        shared.tile_index_empty[tile_index_pipe.stage].wait(tile_index_pipe.phase ^ 1);
        shared.tile_indices[tile_index_pipe.stage] = tile_index;
        shared.tile_index_full[tile_index_pipe.stage].arrive();
        tile_index_pipe.next();
        if (tile_index >= scheduler.count()) return;
        const auto fetch = [&](const auto& a, int64_t slice, int key, Steps steps) {
            const int i = tiles.stage;
            shared.x_empty[i].wait(tiles.phase ^ 1);
            shared.x_full[i].arrive_expect_tx(2 * S::kBlockBytes);
            load_both<S::kBlock, kCols>(shared.x[i][0], maps.k, maps.v, a.key_coordinate(key),
                                        slice % a.kv_heads, slice / a.kv_heads, shared.x_full[i]);
            tiles.next();
            for_each_step<S::kRows>(a, slice, steps, [&](const Place& place) {
                load_step<S::kRows, kCols>(shared, pipe, maps, infos, a, place);
            });
        };
        with_drawn_tile<S::kBlock, S::kRows>(whole, scheduler, kv, tile_index, fetch);
    }
}

// Two threads add the dq of each step, 64 rows each.
template <int kCols, class Shared, class Call>
__device__ void add_tiles(Shared& shared, int part, const Call& whole,
                          const DynamicTileScheduler& scheduler, const KvSplit& kv,
                          const DqAccum& to) {
    using S = FusedBackwardD64<kCols>;
    PipelineState<2> tile_index_pipe;
    PipelineState<1> pipe;
    while (true) {
        shared.tile_index_full[tile_index_pipe.stage].wait(tile_index_pipe.phase);
        const int tile_index = shared.tile_indices[tile_index_pipe.stage];
        shared.tile_index_empty[tile_index_pipe.stage].arrive();
        tile_index_pipe.next();
        if (tile_index >= scheduler.count()) return;
        const auto add = [&](const auto& a, int64_t slice, int key, Steps steps) {
            for_each_step<S::kRows>(a, slice, steps, [&](const Place& place) {
                const int64_t at = info_at(a, place) / 64 + part;
                const int position = key / S::kBlock - int(a.first_key(place.row)) / S::kBlock;
                shared.dq_full[part].wait(pipe.phase);
                if (place.row + part * 64 < a.rows) add_in_order(to, at, position, shared.dq[part]);
                shared.dq_empty[part].arrive();
                pipe.next();
            });
        };
        with_drawn_tile<S::kBlock, S::kRows>(whole, scheduler, kv, tile_index, add);
    }
}

#endif

template <class T, int kCols, class Call>
__global__ WGMMA_KERNEL(FusedBackwardD64<kCols>::kThreads) void backward_fused_d64(
    const __grid_constant__ BackwardMaps maps, const __grid_constant__ Call whole,
    DynamicTileScheduler scheduler, const RowInfo* infos, DqAccum to, DkDvPartials partials, T* dk,
    T* dv) {
#if HAS_WGMMA
    using S = FusedBackwardD64<kCols>;
    constexpr int kRows = S::kRows;
    extern __shared__ char memory[];
    auto& shared = begin_block<typename S::Shared>(memory);
    grid_dependency_wait();
    launch_dependents();
    const int group = warpgroup_number();
    if (group == S::kConsumers) {
        warpgroup_reg_dealloc<S::kProducerRegisters>();
        const int part = threadIdx.x % kWarpgroup / kWarp - 1;
        if (threadIdx.x % kWarp != 0 || part >= S::kConsumers) return;
        if (part < 0) {
            produce_tiles<kCols>(
                shared, maps, whole, scheduler, partials.kv, infos, to.tile_counter);
        } else {
            add_tiles<kCols>(shared, part, whole, scheduler, partials.kv, to);
        }
        return;
    }

    warpgroup_reg_alloc<S::kConsumerRegisters>();
    const bool is_first = threadIdx.x % kWarpgroup == 0;
    const float scale = float(whole.scale) * kLog2E;
    PipelineState<2> tile_index_pipe;
    PipelineState<S::kTiles> tiles;
    PipelineState<S::kStages> pipe;
    PipelineState<1> dq_pipe;
    int ds_stage = 0;
    const auto multiply = [&](const auto& a, int64_t slice, int key, Steps steps) {
        char* const x = shared.x[tiles.stage][0];
        const int64_t shift = a.keys - a.rows;
        const int top = key + group * 64;
        char* const k_tile = x + group * box_bytes(64);
        char* const v_tile = k_tile + S::kBlockBytes;
        StepRegisters<S, kCols> regs;
        const auto step = [&](int row) {
            const DqBuffer dq = {
                shared.dq[group], shared.dq_empty[group], shared.dq_full[group], dq_pipe.phase};
            run_step<T>(regs, KeyTiles{k_tile, v_tile, x}, shared, pipe, ds_stage, dq, a, shift,
                        scale, top, row, group);
            dq_pipe.next();
        };
        shared.x_full[tiles.stage].wait(tiles.phase);
        if constexpr (Call::kPacked) clear_tail<S::kBlock, kCols, S::kConsumers>(x, a.keys - key);
        for_each_row_of_steps<kRows>(a, steps, step);
        consumers_barrier();  // both warpgroups have read k
        store_gradients<S::kBlock, kCols>(maps, a, slice, key, group * 64, 0, k_tile, v_tile,
                                          regs.dk_accum, regs.dv_accum, partials, steps, dk, dv);
        if (is_first) shared.x_empty[tiles.stage].arrive();
        tiles.next();
    };
    while (true) {
        shared.tile_index_full[tile_index_pipe.stage].wait(tile_index_pipe.phase);
        const int tile_index = shared.tile_indices[tile_index_pipe.stage];
        warpgroup_barrier(group);
        if (is_first) shared.tile_index_empty[tile_index_pipe.stage].arrive();
        tile_index_pipe.next();
        if (tile_index >= scheduler.count()) return;
        with_drawn_tile<S::kBlock, kRows>(whole, scheduler, partials.kv, tile_index, multiply);
    }
#endif
}
