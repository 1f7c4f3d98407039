// The wgmma version of matmul_fp8 where tensor cores alone accumulate: ping-pong, and the choice of
// a tile.
#pragma once

#include "matmul_fp8_wgmma.cuh"
#include "tunable.h"

// ---- ping-pong: each consumer warpgroup has a tile of 128 x 128 to itself. One runs its epilogue
// while the other multiplies, so the tensor cores never wait for an epilogue. Clusters of two
// blocks, one below the other, share w: each loads half of it and multicasts it. Otherwise the
// multiprocessors would need more bandwidth than the L2 cache has.
// Flaw: the blocks of a pair wait
// for each other.

template <int pair>
struct Float8PingPong {
    static constexpr bool kByBlock = false;
    static constexpr int kColumns = 128, kStages = 6, kPair = pair;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    static constexpr int kBox = 128 / pair;  // rows of w that TMA loads at once
    static constexpr int kMBlocks = 2;       // blocks of 64 rows of a warpgroup
    struct Stage {
        Float8 x[kTileRows * kScaleBlock], w[kColumns * kScaleBlock];
    };
    struct Shared : PipelineStorage<Stage, kStages> {
        Mbarrier order_barrier[kConsumers];  // this warpgroup may multiply
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

template <class T, class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    matmul_fp8_ping_pong(const __grid_constant__ Maps maps, Float8Product<T> p,
                         TileScheduler scheduler, bool stores) {
#if HAS_WGMMA
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const Pair<Plan::kPair> pair;
    const int steps = int(ceil_div<int64_t>(p.depth, kScaleBlock));
    const int group = warpgroup_number();
    const int thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) {
        init_pipeline(shared, Plan::kPair);
        for (Mbarrier& barrier : shared.order_barrier) barrier.init();
    }
    pair.begin();

    const auto corner_of = [&](int n) {
        TilePlace place;
        scheduler.at(n, pair.rank, place);
        return TileCorner{int(place.row) * kTileRows, int(place.column) * Plan::kColumns};
    };
    PipelineState<Plan::kStages> pipe;
    if (group == kConsumers) {
        warpgroup_reg_dealloc<40>();
        for (int n = pair.index; thread == 0 && n < scheduler.places(); n += pair.count) {
            const TileCorner corner = corner_of(n);
            for (int step = 0; step < steps; ++step, pipe.next()) {
                auto& stage = shared.stages[pipe.stage];
                Mbarrier& full = shared.full[pipe.stage];
                shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
                full.arrive_expect_tx(sizeof(stage));
                const int k = step * kScaleBlock;
                tma_load(stage.x, maps.x, k, corner.row, 0, full);
                pair.template fetch<Plan::kColumns>(stage.w, maps.w, k, corner.column, full);
            }
        }
    } else {
        warpgroup_reg_alloc<232>();
        EpilogueBuffers& buffers = shared.epilogue[group];
        const auto release = [&](int stage) { pair.consumer_release(shared.empty[stage], thread); };
        int stored = 0, order_phase = 1 - group;
        pipe.skip(group * steps);
        for (int n = pair.index + group * pair.count; n < scheduler.places();
             n += kConsumers * pair.count, pipe.skip(steps)) {
            const TileCorner corner = corner_of(n);
            EpilogueOperands<Plan> operands;
            operands.fetch(p, corner, 0);
            shared.order_barrier[group].wait(order_phase++ % 2);
            float final_accum[Plan::kMBlocks][Plan::kColumns / 2];
            int before = 0;
            for (int step = 0; step < steps; ++step, pipe.next()) {
                const auto& stage = shared.stages[pipe.stage];
                shared.full[pipe.stage].wait(pipe.phase % 2);
                multiply_stage(final_accum, stage.x, stage.w, step > 0);
                wgmma_wait<1>();  // the previous step is complete
                if (step > 0) release(before);
                before = pipe.stage;
            }
            if (thread == 0) shared.order_barrier[1 - group].arrive();
            operands.share(buffers, group);
            wgmma_wait<0>();
            release(before);
#pragma unroll
            for (int i = 0; i < Plan::kMBlocks; ++i)
                operands.apply(final_accum[i], i, buffers, p.bias);
#pragma unroll
            for (int i = 0; i < Plan::kMBlocks; ++i) {
                const int row = corner.row + i * 64;
                if (stores) {
                    epilogue_tma<T>(
                        final_accum[i], 1.f, buffers, maps.y, 0, row, corner.column, group, stored);
                } else {
                    epilogue_direct(final_accum[i], p, row, corner.column);
                }
            }
        }
        if (stores && thread == 0) tma_store_wait();
    }
    pair.end();
#endif
}

template <class Plan, class T>
bool launch_fp8_ping_pong(const Float8Product<T>& p, cudaStream_t stream) {
    return launch_fp8_plan<Plan>(matmul_fp8_ping_pong<T, Plan>, p, stream);
}

// The time of a stage of 64 columns, relative to 128. Measured on an H200.
constexpr double kCostOfNarrow = 0.72;

// Whether tiles of 128 columns are at least as fast as those of 64.
template <class T>
bool is_for_wide_tiles(const Float8Product<T>& p) {
    const auto rounds = [&](int columns) {
        const int64_t tiles = TileGrid(1, p.rows, p.units, kTileRows, columns).tiles();
        return double(ceil_div<int64_t>(tiles, multiprocessors()));
    };
    return rounds(128) <= kCostOfNarrow * rounds(64);
}

// Whether ping-pong blocks come in pairs. With an odd number of rows of tiles, one block of the
// last pairs is idle.
template <class T>
bool is_for_pairs(const Float8Product<T>& p) {
    const TileGrid grid(1, p.rows, p.units, kTileRows, 128);
    return multiprocessors() >= 2 && (grid.rows % 2 == 0 || grid.rows > 16);
}

template <class T>
bool launch_fp8_wgmma(const Float8Product<T>& p, cudaStream_t stream) {
    const bool wide = is_for_wide_tiles(p);
    if (p.fast) {
        if (!wide) return launch_fp8_tiles<Float8Plan<64, false, true>>(p, stream);
        return is_for_pairs(p) ? launch_fp8_ping_pong<Float8PingPong<2>>(p, stream)
                               : launch_fp8_ping_pong<Float8PingPong<1>>(p, stream);
    }
    if (p.by_block) {
        return wide ? launch_fp8_tiles<Float8Plan<128, true, false>>(p, stream)
                    : launch_fp8_tiles<Float8Plan<64, true, false>>(p, stream);
    }
    return wide ? launch_fp8_tiles<Float8Plan<128, false, false>>(p, stream)
                : launch_fp8_tiles<Float8Plan<64, false, false>>(p, stream);
}
