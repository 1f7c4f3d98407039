// The backward pass by wgmma in two kernels, one for dq with tiles of rows, and one for dk and dv
// with tiles of keys, so that no sum crosses blocks. Both compute the scores and dp, q k^T and g
// v^T: seven products, where the fused kernel needs five, but has to accumulate dq over blocks, by
// atomics in a different order on every run or by blocks that wait for each other
// (attention_backward_fused_d128.cuh). dk and dv above 128 columns are in
// attention_backward_dkdv_d256.cuh.
//
// While a warpgroup computes p of a step, the tensor cores compute its dp; and while it computes
// ds, they compute the next scores, where there are registers for them: for dq above 64 columns,
// whose steps have fewer keys, and for dk and dv except at 128 columns. There they compute dv
// meanwhile. dq of a step always overlaps with the next step.
//
// ptxas must be able to prove that the registers of a running product are not touched. It can do so
// through a loop only if the product was issued in the same iteration; otherwise it waits for each
// product before the next one and reports "serialized".
#pragma once

#include "attention_backward_dkdv_d256.cuh"

template <int kCols>
struct WgmmaBackward {
    static constexpr int kConsumers = 2, kThreads = kWarpgroup * (kConsumers + 1);
    static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
    static constexpr int kBlock = 64 * kConsumers;  // rows, or keys, of a block's tile
    // Keys of a step of dq, and rows of a step of dk and dv: limited by registers for the scores,
    // and by shared memory for three stages.
    static constexpr int kKeys = kCols > 128 ? 32 : kCols > 64 ? 64 : 128;
    static constexpr int kRows = 64;
    // Whether there are registers for the scores of the next step, too.
    static constexpr bool kAheadOfQ = kCols > 64, kAheadOfKv = kCols != 128;
    static constexpr int kTiles = kCols > 128 ? 1 : 2, kStages = 3;
    static constexpr int kBlockBytes = tile_bytes(kBlock, kCols);
    template <int kStep, int kReaders>
    struct Shared {
        static constexpr int kStepBytes = tile_bytes(kStep, kCols);
        char x[kTiles][2][kBlockBytes];  // q and g, or k and v; in the epilogue their gradients
        char w[kStages][2][kStepBytes];  // the other two
        RowInfo infos[kStages][kStep];
        Mbarrier x_full[kTiles], x_empty[kTiles], w_full[kStages], w_empty[kStages];
        __device__ void init() {
            for (int i = 0; i < kTiles; ++i) x_full[i].init(), x_empty[i].init(kConsumers);
            for (int i = 0; i < kStages; ++i) w_full[i].init(), w_empty[i].init(kReaders);
        }
    };
    using DqShared = Shared<kKeys, kConsumers>;
    using DkDvShared =
        Shared<kRows, kConsumers * kWarpgroup / kWarp>;  // each warp reads infos by itself
};

template <class T, int kCols, class Call>
__global__ WGMMA_KERNEL(WgmmaBackward<kCols>::kThreads) void backward_q_wgmma(
    const __grid_constant__ BackwardMaps maps, const __grid_constant__ Call whole,
    TileScheduler scheduler, const RowInfo* infos, T* dq) {
#if HAS_WGMMA
    using S = WgmmaBackward<kCols>;
    using M = typename S::DqShared;
    constexpr int kKeys = S::kKeys;
    extern __shared__ char memory[];
    auto& shared = begin_block<M>(memory);
    const int group = warpgroup_number();
    if (group == S::kConsumers) {
        warpgroup_reg_dealloc<S::kProducerRegisters>();
        if (threadIdx.x % kWarpgroup != 0) return;
        PipelineState<S::kTiles> tiles;
        PipelineState<S::kStages> pipe;
        const auto fetch = [&](const auto& a, Place place, int begin, int end) {
            const int j = tiles.stage;
            shared.x_empty[j].wait(tiles.phase ^ 1);
            shared.x_full[j].arrive_expect_tx(2 * S::kBlockBytes);
            load_both<S::kBlock, kCols>(shared.x[j][0], maps.q, maps.g, a.row_coordinate(place.row),
                                        place.head, place.batch, shared.x_full[j]);
            tiles.next();
            for (int key = begin; key < end; key += kKeys, pipe.next()) {
                const int i = pipe.stage;
                shared.w_empty[i].wait(pipe.phase ^ 1);
                shared.w_full[i].arrive_expect_tx(2 * M::kStepBytes);
                load_both<kKeys, kCols>(
                    shared.w[i][0], maps.k, maps.v, a.key_coordinate(key), place.head / a.group(),
                    place.batch % a.kv_batches, shared.w_full[i]);
            }
        };
        for_each_tile_of_rows<S::kBlock, kKeys>(whole, scheduler, fetch);
        return;
    }

    warpgroup_reg_alloc<S::kConsumerRegisters>();
    const bool is_first = threadIdx.x % kWarpgroup == 0;
    const float scale = float(whole.scale) * kLog2E;
    PipelineState<S::kTiles> tiles;
    PipelineState<S::kStages> pipe, before;
    const auto multiply = [&](const auto& a, Place place, int begin, int end) {
        const int top = int(place.row) + group * 64;
        const int last = int(a.end_key(top)),
                  first = int(a.first_key(top + 63));  // all rows see these
        char* const q_tile = shared.x[tiles.stage][0] + group * box_bytes(64);
        char* const g_tile = q_tile + S::kBlockBytes;
        RowInfo info[2];
        for (int half = 0; half < 2; ++half) {
            const int row = top + accum_row(2 * half);
            info[half] = {INFINITY, 0};
            if (row < a.rows) info[half] = infos[info_at(a, {place.batch, place.head, row})];
        }
        float accum[kCols / 2] = {}, scores[kKeys / 2], dp[kKeys / 2];
        float others[kKeys / 2];  // powers, while scores of the next step come
        float (&p)[kKeys / 2] = S::kAheadOfQ ? others : scores;
        uint32_t ds[kKeys / 4];
        const auto start_scores = [&](int key) {
            char* const k_tile = shared.w[pipe.stage][0];
            shared.w_full[pipe.stage].wait(pipe.phase);
            if constexpr (Call::kPacked)
                clear_tail<kKeys, kCols, S::kConsumers>(k_tile, a.keys - key);
            wgmma_fence();
            start_rows<T, kCols, S::kBlock>(scores, q_tile, k_tile);
        };
        // With kAheadOfQ the scores of this step are there, and in the end those of the next one.
        const auto step = [&](int key, auto is_last) {
            char* const k_tile = shared.w[pipe.stage][0];
            if constexpr (!S::kAheadOfQ) start_scores(key);
            wgmma_fence();
            start_rows<T, kCols, S::kBlock>(dp, g_tile, k_tile + M::kStepBytes);
            if constexpr (!S::kAheadOfQ) wgmma_wait<1>();  // the scores are complete
#pragma unroll
            for (int i = 0; i < kKeys / 2; ++i)
                p[i] = quick_power_of_2(fmaf(scores[i], scale, -info[i / 2 % 2].lse_log2));
            pipe.next();
            if constexpr (S::kAheadOfQ && !is_last.value) {
                start_scores(key + kKeys);
                wgmma_wait<1>();  // dp is complete, and dq of the step before
            } else {
                wgmma_wait<0>();
            }
            if (key > begin) {
                if (is_first) shared.w_empty[before.stage].arrive();
                before.next();
            }
#pragma unroll
            for (int i = 0; i < kKeys / 2; ++i) dp[i] = p[i] * (dp[i] - info[i / 2 % 2].delta);
            if (key + kKeys > last || key < first) {
                const Limits limits(a, top + accum_row(0), key);
                keep_columns(dp, limits.begin, limits.end, 0);
            }
            as_factor<T>(ds, dp);
            wgmma_fence();
            start_columns<T, kKeys>(accum, ds, k_tile);
            if constexpr (S::kAheadOfQ && !is_last.value) wgmma_wait<1>();  // the next scores
        };
        shared.x_full[tiles.stage].wait(tiles.phase);
        if (begin < end) {
            if constexpr (S::kAheadOfQ) {
                start_scores(begin);
                wgmma_wait<0>();
            }
            int key = begin;
            for (; key + (S::kAheadOfQ ? kKeys : 0) < end; key += kKeys)
                step(key, std::false_type());
            if constexpr (S::kAheadOfQ) step(key, std::true_type());
            wgmma_wait<0>();
            if (is_first) shared.w_empty[before.stage].arrive();
            before.next();
        }
        const float factor[2] = {float(a.scale), float(a.scale)};
        if (Call::kPacked && top + 64 > a.rows) {
            write_tail(dq + a.at(a.dq, {place.batch, place.head, top}), accum, factor, a.rows - top,
                       a.dq.row, a.cols);
        } else {
            scale_rows(accum, factor);
            accum_to_shared<T, S::kBlock>(q_tile, accum);
            tma_writes_done();
            warpgroup_barrier(group);
            if (is_first && top < a.rows) {
                store_rows<S::kBlock, kCols>(
                    maps.to[0], q_tile, a.cols, a.row_coordinate(top), place.head, place.batch);
                tma_store_wait_read<0>();
            }
        }
        if (is_first) shared.x_empty[tiles.stage].arrive();
        tiles.next();
    };
    for_each_tile_of_rows<S::kBlock, kKeys>(whole, scheduler, multiply);
#endif
}

// The scores are k q^T here, so that p and ds have the rows of dv and dk.
template <class T, int kCols, class Call>
__global__ WGMMA_KERNEL(WgmmaBackward<kCols>::kThreads) void backward_kv_wgmma(
    const __grid_constant__ BackwardMaps maps, const __grid_constant__ Call whole,
    TileScheduler scheduler, const RowInfo* infos, DkDvPartials partials, T* dk, T* dv) {
#if HAS_WGMMA
    using S = WgmmaBackward<kCols>;
    using M = typename S::DkDvShared;
    constexpr int kRows = S::kRows;
    extern __shared__ char memory[];
    auto& shared = begin_block<M>(memory);
    const int group = warpgroup_number();
    if (group == S::kConsumers) {
        warpgroup_reg_dealloc<S::kProducerRegisters>();
        if (threadIdx.x % kWarpgroup != 0) return;
        PipelineState<S::kTiles> tiles;
        PipelineState<S::kStages> pipe;
        const auto fetch = [&](const auto& a, int64_t slice, int key, Steps steps) {
            const int j = tiles.stage;
            shared.x_empty[j].wait(tiles.phase ^ 1);
            shared.x_full[j].arrive_expect_tx(2 * S::kBlockBytes);
            load_both<S::kBlock, kCols>(shared.x[j][0], maps.k, maps.v, a.key_coordinate(key),
                                        slice % a.kv_heads, slice / a.kv_heads, shared.x_full[j]);
            tiles.next();
            load_steps<kRows, kCols>(shared, pipe, maps, infos, a, slice, steps);
        };
        for_each_tile_of_keys<S::kBlock, kRows>(whole, scheduler, partials.kv, fetch);
        return;
    }

    warpgroup_reg_alloc<S::kConsumerRegisters>();
    const bool is_first = threadIdx.x % kWarpgroup == 0;
    const float scale = float(whole.scale) * kLog2E;
    PipelineState<S::kTiles> tiles;
    PipelineState<S::kStages> pipe;
    const auto multiply = [&](const auto& a, int64_t slice, int key, Steps steps) {
        const int64_t shift = a.keys - a.rows;
        StepRows<kRows> rows(a, steps);
        const int count = rows.count;
        const int top = key + group * 64;
        char* const k_tile = shared.x[tiles.stage][0] + group * box_bytes(64);
        char* const v_tile = k_tile + S::kBlockBytes;
        float dk_accum[kCols / 2] = {}, dv_accum[kCols / 2] = {};
        float scores[kRows / 2], powers[kRows / 2], dp[kRows / 2];
        uint32_t p[kRows / 4], ds[kRows / 4];
        int& row = rows.row;
        const auto start_scores = [&] {
            char* const q_tile = shared.w[pipe.stage][0];
            shared.w_full[pipe.stage].wait(pipe.phase);
            if constexpr (Call::kPacked) {
                clear_tail<kRows, kCols, S::kConsumers>(q_tile, a.rows - row);
                clear_tail<kRows, kCols, S::kConsumers>(shared.w[pipe.stage][1], a.rows - row);
            }
            wgmma_fence();
            start_rows<T, kCols, S::kBlock>(scores, k_tile, q_tile);
        };
        const auto next = [&] {
            pipe.next();
            rows.next(steps);
        };
        // With kAheadOfKv the scores of this step are complete on entry, and those of the next one
        // on return.
        const auto step = [&](auto is_last) {
            char *const q_tile = shared.w[pipe.stage][0], *const g_tile = q_tile + M::kStepBytes;
            const RowInfo* const row_infos = shared.infos[pipe.stage];
            Mbarrier& empty = shared.w_empty[pipe.stage];
            const int step_row = row;
            const bool some = top < a.first_key(row + kRows - 1) || top + 64 > a.end_key(row);
            if constexpr (!S::kAheadOfKv) start_scores();
            wgmma_fence();
            start_rows<T, kCols, S::kBlock>(dp, v_tile, g_tile);
            if constexpr (!S::kAheadOfKv) wgmma_wait<1>();  // the scores are complete
            compute_p(powers, scores, scale, row_infos);
            clear_hidden(powers, some, a, shift, top, step_row);
            as_factor<T>(p, powers);
            next();
            if constexpr (S::kAheadOfKv && !is_last.value) {
                start_scores();
                wgmma_wait<1>();  // dp is complete
            } else {
                wgmma_wait<0>();
            }
            wgmma_fence();
            start_columns<T, kRows>(dv_accum, p, g_tile);
            compute_ds(dp, powers, row_infos);
            clear_hidden(dp, some, a, shift, top, step_row);
            as_factor<T>(ds, dp);
            wgmma_fence();
            start_columns<T, kRows>(dk_accum, ds, q_tile);
            wgmma_wait<0>();
            __syncwarp();
            if (threadIdx.x % kWarp == 0) empty.arrive();
        };
        shared.x_full[tiles.stage].wait(tiles.phase);
        if (S::kAheadOfKv && count > 0) {
            start_scores();
            wgmma_wait<0>();
        }
        for (int n = S::kAheadOfKv; n < count; ++n) step(std::false_type());
        if (S::kAheadOfKv && count > 0) step(std::true_type());
        store_gradients<S::kBlock, kCols>(maps, a, slice, key, group * 64, 0, k_tile, v_tile,
                                          dk_accum, dv_accum, partials, steps, dk, dv);
        if (is_first) shared.x_empty[tiles.stage].arrive();
        tiles.next();
    };
    for_each_tile_of_keys<S::kBlock, kRows>(whole, scheduler, partials.kv, multiply);
#endif
}

// ---- on the host

// The dK/dV kernel for head size kCols.
template <int kCols>
using DkDvBackward =
    std::conditional_t<(kCols > 128), DkDvBackwardD256<kCols>, WgmmaBackward<kCols>>;
template <class T, int kCols, class Call>
constexpr auto dk_dv_backward() {
    if constexpr (kCols > 128) {
        return backward_kv_d256<T, kCols, Call>;
    } else {
        return backward_kv_wgmma<T, kCols, Call>;
    }
}

template <class T, int kCols, class Call>
bool can_backward_wgmma() {
    using S = WgmmaBackward<kCols>;
    constexpr size_t of_q = sizeof(typename S::DqShared);
    constexpr size_t of_kv = sizeof(typename DkDvBackward<kCols>::DkDvShared);
    return has_wgmma(backward_q_wgmma<T, kCols, Call>, S::kThreads) &&
           has_wgmma(dk_dv_backward<T, kCols, Call>(), DkDvBackward<kCols>::kThreads) &&
           (of_q > of_kv ? of_q : of_kv) + kTileAlign <= size_t(shared_bytes());
}

// Floats of scratch memory besides those for infos.
template <int kCols, class Call>
int64_t wgmma_scratch(const Call& a) {
    using K = DkDvBackward<kCols>;
    return partials_scratch<K::kBlock, K::kRows, kCols, false>(a);
}

// False if TMA cannot read or write the tensors.
template <class T, int kCols, class Call>
bool launch_backward_wgmma(const Call& a, const T* g, const T* q, const T* k, const T* v,
                           const T* y, const float* stats, float* scratch, T* dq, T* dk, T* dv,
                           cudaStream_t stream) {
    using S = WgmmaBackward<kCols>;
    using K = DkDvBackward<kCols>;
    BackwardMaps of_q, of_kv;
    if (!map_inputs(of_q, a, g, q, k, v, S::kBlock, S::kKeys) || !map_dq(of_q, a, dq) ||
        !map_inputs(of_kv, a, g, q, k, v, K::kRows, K::kBlock) || !map_dk_dv(of_kv, a, dk, dv))
        return false;
    RowInfo* const infos = reinterpret_cast<RowInfo*>(scratch);
    const auto partials = partials_of<K::kBlock, K::kRows, kCols, false>(
        a, scratch + 2 * a.slices() * infos_of_slice(a));
    launch_row_infos(a, g, y, stats, infos, stream);
    const auto start = [&](auto kernel, int bytes, const BackwardMaps& maps,
                           const TileScheduler& scheduler, auto... to) {
        bytes += kTileAlign;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        kernel<<<scheduler.blocks, S::kThreads, bytes, stream>>>(maps, a, scheduler, infos, to...);
    };
    start(dk_dv_backward<T, kCols, Call>(), sizeof(typename K::DkDvShared), of_kv,
          scheduler_of<kCols>(a, partials.kv.count(a), a.key_tiles(K::kBlock), K::kBlock,
                              a.rows * a.q_slices_per_kv(), partials.kv.splits),
          partials, dk, dv);
    launch_convert_accum<T, kCols, K::kBlock>(a, {}, partials, (T*)nullptr, dk, dv, stream);
    start(backward_q_wgmma<T, kCols, Call>, sizeof(typename S::DqShared), of_q,
          scheduler_of<kCols>(a, a.slices(), a.row_tiles(S::kBlock), S::kBlock, a.keys, a.group()),
          dq);
    return true;
}
