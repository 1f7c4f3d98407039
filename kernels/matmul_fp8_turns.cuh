// The version of matmul_fp8 by wgmma and TMA where tensor cores alone add up the sums.
#pragma once

#include "matmul_fp8_wgmma.cuh"
#include "tunable.h"

// ---- turns: a warpgroup has a tile of 128 x 128 to itself. One finishes and stores its tile while
// the other one multiplies; so the tensor cores never wait for a tile's end. Blocks in pairs, one
// below the other, share w: each asks for half of it, for both. Else so many multiprocessors at
// this speed would want more of the L2 cache than it gives.
// Flaw: the blocks of a pair wait for each other.

template <int pair>
struct Float8Turns {
    static constexpr bool kByBlock = false;
    static constexpr int kColumns = 128, kStages = 6, kPair = pair;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    static constexpr int kBox = 128 / pair;  // rows of w that TMA loads at once
    static constexpr int kParts = 2;         // of 64 rows, of a warpgroup's tile
    struct Stage {
        Float8 x[kTileRows * kScaleBlock], w[kColumns * kScaleBlock];
    };
    struct Shared : StagesAndBoxes<Stage, kStages> {
        Mbarrier turn[kConsumers];  // that it is this warpgroup's turn to multiply
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

template <class T, class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    matmul_fp8_turns(const __grid_constant__ Maps maps, Float8Product<T> p, TileOrder order,
                     bool stores) {
#if HAS_WGMMA
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const Pair<Plan::kPair> pair;
    const int steps = int(ceil_div<int64_t>(p.depth, kScaleBlock));
    // The shuffle tells the compiler that it is the same in a warp.
    const int group = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
    const int thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) {
        init_stages(shared, Plan::kPair);
        for (Mbarrier& turn : shared.turn) turn.init();
    }
    pair.begin();

    const auto corner_of = [&](int n) {
        TilePlace place;
        order.at(n, pair.rank, place);
        return TileCorner{int(place.row) * kTileRows, int(place.column) * Plan::kColumns};
    };
    Ring<Plan::kStages> ring;
    if (group == kConsumers) {
        give_registers<40>();
        for (int n = pair.index; thread == 0 && n < order.places(); n += pair.count) {
            const TileCorner corner = corner_of(n);
            for (int step = 0; step < steps; ++step, ring.next()) {
                auto& stage = shared.stages[ring.stage];
                Mbarrier& full = shared.full[ring.stage];
                shared.empty[ring.stage].wait((ring.round + 1) % 2);
                full.arrive_expect_tx(sizeof(stage));
                const int k = step * kScaleBlock;
                tma_load(stage.x, maps.x, k, corner.row, 0, full);
                pair.template fetch<Plan::kColumns>(stage.w, maps.w, k, corner.column, full);
            }
        }
    } else {
        take_registers<232>();
        Boxes& boxes = shared.boxes[group];
        const auto done = [&](int stage) { pair.is_read(shared.empty[stage], thread); };
        int stored = 0, turn = 1 - group;
        ring.skip(group * steps);
        for (int n = pair.index + group * pair.count; n < order.places();
             n += kConsumers * pair.count, ring.skip(steps)) {
            const TileCorner corner = corner_of(n);
            TileEnd<Plan> end;
            end.ask(p, corner, 0);
            shared.turn[group].wait(turn++ % 2);
            float totals[Plan::kParts][Plan::kColumns / 2];
            int before = 0;
            for (int step = 0; step < steps; ++step, ring.next()) {
                const auto& stage = shared.stages[ring.stage];
                shared.full[ring.stage].wait(ring.round % 2);
                multiply_stage(totals, stage.x, stage.w, step > 0);
                wgmma_wait<1>();  // the products of the step before are done
                if (step > 0) done(before);
                before = ring.stage;
            }
            if (thread == 0) shared.turn[1 - group].arrive();
            end.share(boxes, group);
            wgmma_wait<0>();
            done(before);
#pragma unroll
            for (int i = 0; i < Plan::kParts; ++i) end.finish(totals[i], i, boxes, p.bias);
#pragma unroll
            for (int i = 0; i < Plan::kParts; ++i) {
                const int row = corner.row + i * 64;
                if (stores) {
                    store_scaled<T>(
                        totals[i], 1.f, boxes, maps.y, 0, row, corner.column, group, stored);
                } else {
                    store_each(totals[i], p, row, corner.column);
                }
            }
        }
        if (stores && thread == 0) tma_store_wait();
    }
    pair.end();
#endif
}

template <class Plan, class T>
bool launch_fp8_turns(const Float8Product<T>& p, cudaStream_t stream) {
    return launch_fp8_plan<Plan>(matmul_fp8_turns<T, Plan>, p, stream);
}

// What a stage of tiles of 64 columns takes, beside one of 128. Measured on an H200.
constexpr double kCostOfNarrow = 0.72;

// Whether tiles of 128 columns are done first; of two that take as long, the wider ones.
template <class T>
bool is_for_wide_tiles(const Float8Product<T>& p) {
    const auto rounds = [&](int columns) {
        const int64_t tiles = TileGrid(1, p.rows, p.units, kTileRows, columns).tiles();
        return double(ceil_div<int64_t>(tiles, multiprocessors()));
    };
    return rounds(128) <= kCostOfNarrow * rounds(64);
}

// Whether blocks that take turns come in pairs, one tile below the other: of an odd number of rows
// of tiles, one block of the last pairs has nothing to multiply.
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
        return is_for_pairs(p) ? launch_fp8_turns<Float8Turns<2>>(p, stream)
                               : launch_fp8_turns<Float8Turns<1>>(p, stream);
    }
    if (p.by_block) {
        return wide ? launch_fp8_tiles<Float8Plan<128, true, false>>(p, stream)
                    : launch_fp8_tiles<Float8Plan<64, true, false>>(p, stream);
    }
    return wide ? launch_fp8_tiles<Float8Plan<128, false, false>>(p, stream)
                : launch_fp8_tiles<Float8Plan<64, false, false>>(p, stream);
}
