// The dK/dV kernel by wgmma for 129 to 256 columns. The accumulators of 64 keys do not fit into the
// registers of a warpgroup, so two warpgroups share the keys: each has half of the rows of the
// scores and dp of a step, and half of the columns of dk and dv. p and ds, which both need, go
// through shared memory.
//
// dk and dv of a step overlap with the scores of the next one.
#pragma once

#include "attention_backward_pipeline.cuh"

template <int kCols>
struct DkDvBackwardD256 {
    static constexpr int kConsumers = 2, kThreads = kWarpgroup * (kConsumers + 1);
    static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
    static constexpr int kBlock = 64, kRows = 64;     // keys of a block, rows of a step
    static constexpr int kHalf = kRows / kConsumers;  // rows of a warpgroup's scores
    static constexpr int kOut = kCols / kConsumers;   // its columns of dk and dv
    static constexpr int kStages = 2;
    static constexpr int kBlockBytes = tile_bytes(kBlock, kCols),
                         kStepBytes = tile_bytes(kRows, kCols);
    struct Shared {
        char x[2][kBlockBytes];                 // k and v, in the epilogue their gradients
        char w[kStages][2][kStepBytes];         // q and g
        char p[kStages][2][box_bytes(kBlock)];  // p and ds, [keys, rows]
        RowInfo infos[kStages][kRows];
        Mbarrier x_full, w_full[kStages], w_empty[kStages];
        __device__ void init() {
            x_full.init();
            for (int i = 0; i < kStages; ++i) w_full[i].init(), w_empty[i].init(kConsumers);
        }
    };
    using DkDvShared = Shared;
};

#if HAS_WGMMA

// accum [64, N] += factor [64, w_rows], a tile in shared memory, times w.
template <class T, int w_rows, int N2>
__device__ void start_columns(float (&accum)[N2], const char* factor, const char* w) {
#pragma unroll
    for (int r = 0; r < w_rows; r += 16)
        wgmma<T, false, true>(accum, wgmma_descriptor(factor) + r / 8,
                              wgmma_descriptor(w, box_bytes(w_rows)) + r * 8, true);
    wgmma_commit();
}

#endif

template <class T, int kCols, class Call>
__global__ WGMMA_KERNEL(DkDvBackwardD256<kCols>::kThreads) void backward_kv_d256(
    const __grid_constant__ BackwardMaps maps, const __grid_constant__ Call whole,
    TileScheduler scheduler, const RowInfo* infos, DkDvPartials partials, T* dk, T* dv) {
#if HAS_WGMMA
    using S = DkDvBackwardD256<kCols>;
    constexpr int kRows = S::kRows;
    extern __shared__ char memory[];
    auto& shared = begin_block<typename S::Shared>(memory);
    grid_dependency_wait();
    launch_dependents();
    const int group = warpgroup_number();
    if (group == S::kConsumers) {
        warpgroup_reg_dealloc<S::kProducerRegisters>();
        if (threadIdx.x % kWarpgroup != 0) return;
        PipelineState<S::kStages> pipe;
        const auto fetch = [&](const auto& a, int64_t slice, int key, Steps steps) {
            shared.x_full.arrive_expect_tx(2 * S::kBlockBytes);
            load_both<S::kBlock, kCols>(shared.x[0], maps.k, maps.v, a.key_coordinate(key),
                                        slice % a.kv_heads, slice / a.kv_heads, shared.x_full);
            load_steps<kRows, kCols>(shared, pipe, maps, infos, a, slice, steps);
        };
        for_each_tile_of_keys<S::kBlock, kRows>(whole, scheduler, partials.kv, fetch);
        return;
    }

    warpgroup_reg_alloc<S::kConsumerRegisters>();
    const bool is_first = threadIdx.x % kWarpgroup == 0;
    const float scale = float(whole.scale) * kLog2E;
    const auto multiply = [&](const auto& a, int64_t slice, int key, Steps steps) {
        const int first = group * S::kHalf;               // of this warpgroup's rows of a step
        const int column_boxes = group * (S::kOut / 64);  // in boxes
        const int64_t shift = a.keys - a.rows;
        StepRows<kRows> rows(a, steps);
        float dk_accum[S::kOut / 2] = {}, dv_accum[S::kOut / 2] = {};
        PipelineState<S::kStages> pipe, before;
        shared.x_full.wait(0);
        for (int n = 0; n < rows.count; ++n, rows.next(steps)) {
            const int row = rows.row;
            char *const q_tile = shared.w[pipe.stage][0], *const g_tile = q_tile + S::kStepBytes;
            char *const p_tile = shared.p[pipe.stage][0], *const ds_tile = shared.p[pipe.stage][1];
            const RowInfo* const row_infos = shared.infos[pipe.stage] + first;
            const int top = row + first;
            const bool some = key < a.first_key(top + S::kHalf - 1) || key + 64 > a.end_key(top);
            float scores[S::kHalf / 2], dp[S::kHalf / 2];
            shared.w_full[pipe.stage].wait(pipe.phase);
            if constexpr (Call::kPacked) {
                clear_tail<kRows, kCols, S::kConsumers>(q_tile, a.rows - row);
                clear_tail<kRows, kCols, S::kConsumers>(g_tile, a.rows - row);
            }
            wgmma_fence();
            start_rows<T, kCols, S::kBlock, kRows>(scores, shared.x[0], q_tile + first * kTileRow);
            wgmma_fence();
            start_rows<T, kCols, S::kBlock, kRows>(dp, shared.x[1], g_tile + first * kTileRow);
            wgmma_wait<1>();  // the scores, and dk and dv of the previous step, are complete
            if (n > 0) {
                if (is_first) shared.w_empty[before.stage].arrive();
                before.next();
            }
            compute_p(scores, scores, scale, row_infos);
            clear_hidden(scores, some, a, shift, key, top);
            accum_to_shared<T, S::kBlock>(p_tile, scores, first);
            wgmma_wait<0>();  // dp is complete
            compute_ds(dp, scores, row_infos);
            clear_hidden(dp, some, a, shift, key, top);
            accum_to_shared<T, S::kBlock>(ds_tile, dp, first);
            tma_writes_done();
            consumers_barrier();
            wgmma_fence();
            start_columns<T, kRows>(dv_accum, p_tile, g_tile + column_boxes * box_bytes(kRows));
            start_columns<T, kRows>(dk_accum, ds_tile, q_tile + column_boxes * box_bytes(kRows));
            pipe.next();
        }
        wgmma_wait<0>();
        consumers_barrier();  // both warpgroups have read k and v
        const int box = column_boxes * box_bytes(S::kBlock);
        store_gradients<S::kBlock, kCols>(
            maps, a, slice, key, 0, group * S::kOut, shared.x[0] + box, shared.x[1] + box, dk_accum,
            dv_accum, partials, steps, dk, dv);
    };
    for_each_tile_of_keys<S::kBlock, kRows>(whole, scheduler, partials.kv, multiply);
#endif
}
