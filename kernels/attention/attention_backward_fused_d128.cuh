// The fused backward pass by wgmma for 65 to 128 columns: dq, dk and dv in one kernel with five
// products, where attention_backward_wgmma.cuh has two kernels and seven. A block has a tile of
// keys. Its dk and dv stay in registers; its part of dq is added by TMA to float accumulators in
// global memory (attention_backward_dq_accum.cuh), which a second kernel scales and rounds.
// attention_backward_fused_d64.cuh is for fewer columns.
#pragma once

#include <algorithm>

#include "attention_backward_fused_d64.cuh"

template <int kCols>
struct FusedBackwardD128 {
    static constexpr int kConsumers = 2, kThreads = kWarpgroup * (kConsumers + 1);
    static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
    static constexpr int kBlock = 64 * kConsumers, kRows = 64;  // keys of a tile, rows of a step
    static constexpr int kStages = 2;                           // of q and g, and of dq
    static constexpr bool kPersistent = false;                  // one tile per block
    static constexpr int kBlockBytes = tile_bytes(kBlock, kCols),
                         kStepBytes = tile_bytes(kRows, kCols);
    // A warpgroup has all rows of dq of a step, and half of the columns.
    static constexpr int kOut = kCols / kConsumers, kDsOfGroup = 0;
    struct Shared {
        char x[2][kBlockBytes];          // k and v, in the epilogue their gradients
        char w[kStages][2][kStepBytes];  // q and g
        char ds[2][box_bytes(kBlock)];   // [keys, rows], double buffered
        float dq[kStages][kConsumers][DqAccum::kNumbers];
        RowInfo infos[kStages][kRows];
        Mbarrier x_full, w_full[kStages], w_empty[kStages];
        Mbarrier dq_full[kStages][kConsumers], dq_empty[kStages][kConsumers];
        __device__ void init() {
            x_full.init();
            for (int i = 0; i < kStages; ++i) {
                w_full[i].init(), w_empty[i].init(kConsumers);
                for (int part = 0; part < kConsumers; ++part)
                    dq_full[i][part].init(kWarpgroup / kWarp), dq_empty[i][part].init();
            }
        }
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

#if HAS_WGMMA

// The producer thread: loads k, v, and q and g of each step.
template <int kCols, class Shared, class Call>
__device__ void load_steps(Shared& shared, const BackwardMaps& maps, const Call& a,
                           const RowInfo* infos, int64_t slice, int key, Steps steps) {
    using S = FusedBackwardD128<kCols>;
    shared.x_full.arrive_expect_tx(2 * S::kBlockBytes);
    load_both<S::kBlock, kCols>(shared.x[0], maps.k, maps.v, a.key_coordinate(key),
                                slice % a.kv_heads, slice / a.kv_heads, shared.x_full);
    PipelineState<S::kStages> pipe;
    for_each_step<S::kRows>(a, slice, steps, [&](const Place& place) {
        load_step<S::kRows, kCols>(shared, pipe, maps, infos, a, place);
    });
}

// Another thread adds a part of the dq of each step.
template <int kCols, class Shared, class Call>
__device__ void add_steps(Shared& shared, int part, const Call& a, const DqAccum& to, int64_t slice,
                          int key, Steps steps) {
    using S = FusedBackwardD128<kCols>;
    PipelineState<S::kStages> pipe;
    for_each_step<S::kRows>(a, slice, steps, [&](const Place& place) {
        const int i = pipe.stage;
        const int64_t at = info_at(a, place) / S::kRows * S::kConsumers + part;
        const int position = key / S::kBlock - int(a.first_key(place.row)) / S::kBlock;
        shared.dq_full[i][part].wait(pipe.phase);
        add_in_order(to, at, position, shared.dq[i][part]);
        shared.dq_empty[i][part].arrive();
        pipe.next();
    });
}

#endif

template <class T, int kCols, class Call>
__global__ WGMMA_KERNEL(FusedBackwardD128<kCols>::kThreads) void backward_fused_d128(
    const __grid_constant__ BackwardMaps maps, const __grid_constant__ Call whole,
    DynamicTileScheduler scheduler, const RowInfo* infos, DqAccum to, DkDvPartials partials, T* dk,
    T* dv) {
#if HAS_WGMMA
    using S = FusedBackwardD128<kCols>;
    constexpr int kRows = S::kRows;
    extern __shared__ char memory[];
    __shared__ int tile_index;
    grid_dependency_wait();
    launch_dependents();
    if (threadIdx.x == 0) tile_index = atomicAdd(to.tile_counter, 1);
    auto& shared = begin_block<typename S::Shared>(memory);
    const int group = warpgroup_number();
    const auto with_tile = [&](auto f) {
        with_drawn_tile<S::kBlock, kRows>(whole, scheduler, partials.kv, tile_index, f);
    };

    if (group == S::kConsumers) {
        warpgroup_reg_dealloc<S::kProducerRegisters>();
        const int part = threadIdx.x % kWarpgroup / kWarp - 1;
        if (threadIdx.x % kWarp != 0 || part >= S::kConsumers) return;
        with_tile([&](const auto& a, int64_t slice, int key, Steps steps) {
            if (part < 0) {
                load_steps<kCols>(shared, maps, a, infos, slice, key, steps);
            } else {
                add_steps<kCols>(shared, part, a, to, slice, key, steps);
            }
        });
        return;
    }

    warpgroup_reg_alloc<S::kConsumerRegisters>();
    const float scale = float(whole.scale) * kLog2E;
    with_tile([&](const auto& a, int64_t slice, int key, Steps steps) {
        const int64_t shift = a.keys - a.rows;
        const int top = key + group * 64;
        char* const k_tile = shared.x[0] + group * box_bytes(64);
        char* const v_tile = k_tile + S::kBlockBytes;
        const int column = group * S::kOut;  // the first column of this warpgroup's part of dq
        const char* const k_columns =
            shared.x[0] + column / 64 * box_bytes(S::kBlock) + column % 64 * int(sizeof(T));
        StepRegisters<S, kCols> regs;
        PipelineState<S::kStages> pipe;
        int ds_stage = 0;
        const auto step = [&](int row) {
            const int i = pipe.stage;
            const DqBuffer dq = {shared.dq[i][group], shared.dq_empty[i][group],
                                 shared.dq_full[i][group], pipe.phase};
            run_step<T>(regs, KeyTiles{k_tile, v_tile, k_columns}, shared, pipe, ds_stage, dq, a,
                        shift, scale, top, row, group);
        };
        shared.x_full.wait(0);
        if constexpr (Call::kPacked)
            clear_tail<S::kBlock, kCols, S::kConsumers>(shared.x[0], a.keys - key);
        for_each_row_of_steps<kRows>(a, steps, step);
        consumers_barrier();  // both warpgroups have read k
        store_gradients<S::kBlock, kCols>(maps, a, slice, key, group * 64, 0, k_tile, v_tile,
                                          regs.dk_accum, regs.dv_accum, partials, steps, dk, dv);
    });
#endif
}

// ---- on the host

// Whether the fused backward pass exists for so many columns.
constexpr bool has_fused_backward(int64_t cols) { return cols <= 128; }

template <int kCols>
using FusedBackward =
    std::conditional_t<(kCols > 64), FusedBackwardD128<kCols>, FusedBackwardD64<kCols>>;
template <class T, int kCols, class Call>
constexpr auto fused_backward() {
    if constexpr (kCols > 64) {
        return backward_fused_d128<T, kCols, Call>;
    } else {
        return backward_fused_d64<T, kCols, Call>;
    }
}

template <class T, int kCols, class Call>
bool can_backward_fused() {
    if constexpr (!has_fused_backward(kCols)) {
        return false;
    } else {
        using S = FusedBackward<kCols>;
        const auto kernel = fused_backward<T, kCols, Call>();
        return has_wgmma(kernel, S::kThreads) && remembered(kernel, 0, [&]() -> int {
                   cudaFuncAttributes compiled = {};  // static shared memory counts, too
                   return cudaFuncGetAttributes(&compiled, kernel) == cudaSuccess &&
                          S::kBytes + int(compiled.sharedSizeBytes) <= shared_bytes();
               });
    }
}

// Tiles of 64 rows of all slices.
template <class Call>
int64_t all_row_tiles(const Call& a) {
    return a.slices() * a.row_tiles(64);
}

// Floats of scratch memory besides those for infos.
template <int kCols, class Call>
int64_t fused_scratch(const Call& a) {
    using S = FusedBackward<kCols>;
    const int64_t tiles = all_row_tiles(a);
    return tiles * 64 * kCols + DqAccum::ints(tiles, kCols) +
           partials_scratch<S::kBlock, S::kRows, kCols, true>(a);
}

// How many slices of k and v blocks work on at a time. Half of the L2 cache is for their q, g and
// dq accumulators. In causal attention at least so many that about eight blocks of a slice start
// together: more would wait for each other too long.
template <class Call>
int64_t slices_at_once(const Call& a, int processors) {
    constexpr int64_t room = 24 << 20;
    const int64_t count = room / (8 * a.rows * a.q_slices_per_kv() * a.cols + 1) + 1;
    if (a.right >= a.keys) return count;
    return std::max(count, ceil_div<int64_t>(processors, 8) / a.q_slices_per_kv());
}

// The order in which blocks draw tiles of keys: whole tiles before shared ones, and in causal
// attention the longest ones of the last two rounds of blocks first. A block waits for blocks with
// lower tiles of its slice, so those must come before it: a slice is in one group.
template <class Call>
DynamicTileScheduler key_scheduler(const Call& a, int tiles, const KvSplit& kv,
                                   int processors = multiprocessors()) {
    const int slices = kv.count(a);
    const int64_t together = slices_at_once(a, processors) * (kv.whole > 0 ? 1 : kv.splits);
    const int at_once = int(smaller<int64_t>(slices, together));
    int grouped = slices;
    if (kv.whole > 0 && kv.whole < a.kv_slices()) {
        grouped = kv.whole;
    } else if (!Call::kPacked && a.right < a.keys) {
        const int last = ceil_div(2 * processors, tiles);
        grouped = last < slices ? (slices - last) / at_once * at_once : 0;
    }
    return {tiles, slices, at_once, grouped};
}

// False if TMA cannot read or write the tensors.
template <class T, int kCols, class Call>
bool launch_backward_fused(const Call& a, const T* g, const T* q, const T* k, const T* v,
                           const T* y, const float* stats, float* scratch, T* dq, T* dk, T* dv,
                           cudaStream_t stream) {
    using S = FusedBackward<kCols>;
    BackwardMaps maps;
    if (!map_inputs(maps, a, g, q, k, v, S::kRows, S::kBlock) || !map_dk_dv(maps, a, dk, dv))
        return false;
    RowInfo* const infos = reinterpret_cast<RowInfo*>(scratch);
    const int64_t tiles = all_row_tiles(a), ints = DqAccum::ints(tiles, kCols);
    float* const values = scratch + 2 * tiles * 64;
    int* const tile_counter = reinterpret_cast<int*>(values + tiles * 64 * kCols);
    const DqAccum dq_accum = {values, tile_counter + 1, tile_counter};
    const auto partials = partials_of<S::kBlock, S::kRows, kCols, true>(
        a, reinterpret_cast<float*>(tile_counter + ints));
    launch_row_infos(a, g, y, stats, infos, stream, {tile_counter, kCols / DqAccum::kPart});
    const auto scheduler = key_scheduler(a, a.key_tiles(S::kBlock), partials.kv);
    const auto kernel = fused_backward<T, kCols, Call>();
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
    const int blocks =
        S::kPersistent ? smaller(scheduler.count(), multiprocessors()) : scheduler.count();
    launch_secondary(kernel, 1, blocks, S::kThreads, S::kBytes, stream, maps, a, scheduler, infos,
                     dq_accum, partials, dk, dv);
    launch_convert_accum<T, kCols, S::kBlock>(a, dq_accum, partials, dq, dk, dv, stream);
    return true;
}
