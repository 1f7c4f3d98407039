// The wgmma versions of matmul, for 16-bit floats on GPUs of compute capability 9.0. TMA fills the
// stages of a pipeline in shared memory, and tensor cores read their operands from there.
//
// The stages, loads and products are in matmul_pipeline.cuh, the scheduler of tiles in
// matmul_scheduler.cuh, the epilogues in matmul_epilogue.cuh, and the choice of a kernel and its
// tiles for a product in matmul_wgmma_launch.cuh.
#pragma once

#include "dependent_launch.cuh"
#include "matmul_scheduler.cuh"

// ---- wgmma: a block of two warpgroups computes 128 x 128 elements of y through a pipeline of four
// stages. A thread refills a stage after all threads have used it.
// Flaw: the tensor cores idle while the threads wait for each other, and between the end of one
// block and the first tiles of the next.

template <class T>
struct PlainTile {
    static constexpr int kColumns = 128, kStages = 4, kThreads = 2 * kWarpgroup;
    struct Shared {
        Stage<T, kColumns> stages[kStages];
        EpilogueBuffers epilogue[kConsumers];
        Mbarrier full[kStages];
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

template <class T>
__global__ void WGMMA_KERNEL(PlainTile<T>::kThreads)
    matmul_wgmma(const __grid_constant__ Maps maps, Product<T> p, TileGrid grid) {
#if HAS_WGMMA
    using Tile = PlainTile<T>;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Tile::Shared>(dynamic);
    const TilePlace place = grid.place(blockIdx.x);
    const auto rows = TileRows<kTileRows>::of(place.row, p.rows);
    const auto columns = TileRows<Tile::kColumns>::of_w(p, place.column);
    const int steps = int(ceil_div<int64_t>(p.depth, kTileDepth));
    const int group = threadIdx.x / kWarpgroup;
    const auto fetch = [&](int step) {
        Mbarrier& full = shared.full[step % Tile::kStages];
        auto& stage = shared.stages[step % Tile::kStages];
        full.arrive_expect_tx(sizeof(stage));
        for (int half = 0; half < 2; ++half) {
            fetch_half<kTileRows>(
                stage.x, half, maps.x, p.x.col == 1, rows.first[half], step, place.matrix, full, 0);
            fetch_half<Tile::kColumns>(stage.w, half, maps.w, p.w.col == 1, columns.first[half],
                                       step, place.matrix, full, 0);
        }
    };
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) full.init();
        for (int step = 0; step < Tile::kStages && step < steps; ++step) fetch(step);
    }
    __syncthreads();

    float accum[1][Tile::kColumns / 2] = {};
    for (int step = 0; step < steps; ++step) {
        const int i = step % Tile::kStages;
        shared.full[i].wait(step / Tile::kStages % 2);
        multiply(
            accum, p, shared.stages[i].x + group * 64 * kTileDepth, shared.stages[i].w, step > 0);
        wgmma_wait<0>();
        __syncthreads();
        if (threadIdx.x == 0 && step + Tile::kStages < steps) fetch(step + Tile::kStages);
    }
    epilogue(accum[0], p, shared.epilogue[group], place.matrix,
             int(place.row) * kTileRows + group * 64, columns.first[0], group);
#endif
}

// ---- specialized: warp specialization. One warpgroup is the producer, which issues the TMA loads;
// two consumer warpgroups multiply a tile of 128 x 256 and wait for nothing but full stages. The
// blocks are persistent, one per multiprocessor: the producer loads the stages of the next tile
// during the epilogue of this one.
// Flaw: each block reads all its operands from the L2 cache, and neighbouring blocks read the same
// w.
//
// ---- cluster: two blocks of a cluster, one below the other, share their columns. Each loads half
// of the tile of w and multicasts it to both, which saves a third of the bytes from the L2 cache.
// Flaw: the tensor cores idle during the epilogue, and one row of tiles reads all of w.
//
// ---- stores: the epilogue leaves y in shared memory, 64 columns at a time, and TMA stores it
// while the warpgroup goes on. The scheduler runs tiles that form a square at the same time, so
// that their operands are found in the L2 cache; clusters then gain nothing, and each block is
// alone again. Everything that is fused into the product happens in the accumulator registers first
// (matmul_epilogue.cuh), and nothing is multiplied meanwhile.
//
// Ping-pong: where TMA cannot store the results and the epilogue does more than round, each
// consumer warpgroup has a tile of 128 x 128 to itself, and one runs its epilogue while the other
// multiplies. The same holds where a product of small depth is added to y, because TMA takes longer
// to add than to store.

template <class T, int columns, int pair, bool stores, int ping_pong_tiles = 1, bool fused = false>
struct Plan {
    static constexpr int kColumns = columns;
    static constexpr int kPair = pair;       // cluster size
    static constexpr bool kStores = stores;  // y is stored by TMA
    static constexpr bool kFused = fused;    // the epilogue fuses bias, activation or residual
    static constexpr bool kSplitK = stores && !fused;  // split-K is allowed
    // 1: cooperative, all consumer warpgroups share a tile; 2: ping-pong.
    static constexpr int kPingPongTiles = ping_pong_tiles;
    static constexpr int kStages = columns > 160 ? 4 : columns > 128 ? 5 : columns > 64 ? 6 : 8;
    // The last steps of a tile that the two warpgroups run one after the other.
    static constexpr int kLast = stores && ping_pong_tiles == 1 && columns == 256 ? 3 : 0;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    struct Shared {
        Stage<T, columns> stages[kStages];
        EpilogueBuffers epilogue[kConsumers];
        uint32_t bias[kConsumers][columns / 2];  // of their tile, in pairs
        Mbarrier full[kStages], empty[kStages];
        Mbarrier order_barrier[kConsumers];  // ping-pong: this warpgroup may multiply
        TileAt tiles[kStages];               // the tile that a stage belongs to
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

template <class T, class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    matmul_specialized(const __grid_constant__ Maps maps, Product<T> p, TileScheduler scheduler,
                       SplitK split_k, int work_units) {
#if HAS_WGMMA
    constexpr int kStages = Plan::kStages, kColumns = Plan::kColumns, kPair = Plan::kPair;
    constexpr int kPingPongTiles = Plan::kPingPongTiles;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const Pair<kPair> pair;
    const int steps = int(ceil_div<int64_t>(p.depth, kTileDepth));
    const int group = warpgroup_number();
    const int thread = threadIdx.x % kWarpgroup;
    launch_dependents();
    if (threadIdx.x == 0) {
        init_pipeline(shared, kConsumers / kPingPongTiles * kPair);
        for (Mbarrier& barrier : shared.order_barrier) barrier.init();
    }
    pair.begin();
    grid_dependency_wait();

    const int count = Plan::kSplitK ? work_units : scheduler.places();
    // Finds a work unit. That takes several dependent divisions, so the producer does it and passes
    // the place on: consumers would do it between two tiles.
    const auto find = [&](int n, TilePlace& place, int& first) {
        first = 0;
        scheduler.at(Plan::kSplitK ? split_k.tile(n, first) : n, pair.rank, place);
    };
    const auto steps_of = [&](int n) {
        return Plan::kSplitK && n >= split_k.whole ? split_k.steps : steps;
    };
    PipelineState<kStages> pipe;
    if (group == kConsumers) {
        warpgroup_reg_dealloc<40>();
        for (int n = pair.index; thread == 0 && n < count; n += pair.count) {
            TilePlace place;
            int first;
            find(n, place, first);
            const int end = first + steps_of(n);
            const int rows[] = {scheduler.rows(int(place.row), 0, p.rows).first,
                                scheduler.rows(int(place.row), 1, p.rows).first};
            const int of_tile = kColumns / rows_per_unit(p);
            const int unit = scheduler.units(int(place.column), of_tile, p.units).first;
            const int64_t columns[] = {
                unit, p.act == kSwiglu ? unit + p.units : unit + int64_t(kColumns / 2)};
            for (int step = first; step < end; ++step, pipe.next()) {
                auto& stage = shared.stages[pipe.stage];
                Mbarrier& full = shared.full[pipe.stage];
                shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
                shared.tiles[pipe.stage] = place;
                full.arrive_expect_tx(sizeof(stage));
                for (int half = 0; half < 2; ++half) {
                    fetch_half<kTileRows>(stage.x, half, maps.x, p.x.col == 1, rows[half], step,
                                          place.matrix, full, 0);
                    // Each block of a pair loads its half for both.
                    if (kPair == 1 || half == pair.rank)
                        fetch_half<kColumns>(stage.w, half, maps.w, p.w.col == 1, columns[half],
                                             step, place.matrix, full, pair.kAll);
                }
            }
            if (Plan::kFused && p.residual)
                fetch_residual(
                    shared, pipe, maps.residual, int(place.matrix), rows, unit, of_tile / 64);
        }
    } else {
        warpgroup_reg_alloc<232>();
        EpilogueBuffers& buffers = shared.epilogue[group];
        int stored = 0;
        const auto release = [&](int stage) { pair.consumer_release(shared.empty[stage], thread); };
        // In ping-pong, the stages of every second tile belong to the other warpgroup. This one
        // must not wait for its own stages before those are full: an mbarrier distinguishes only
        // two successive phases.
        int n = pair.index, of_tile = group * 64, order_phase = 0;
        if (kPingPongTiles > 1)
            n += group * pair.count, of_tile = 0, order_phase = 1 - group, pipe.skip(group * steps);
        for (; n < count;
             n += kPingPongTiles * pair.count, pipe.skip((kPingPongTiles - 1) * steps)) {
            const int unit_steps = steps_of(n);
            if (kPingPongTiles > 1) shared.order_barrier[group].wait(order_phase++ % 2);
            shared.full[pipe.stage].wait(pipe.phase % 2);
            const TileAt place = shared.tiles[pipe.stage];
            const Span units = scheduler.units(place.column, kColumns / rows_per_unit(p), p.units);
            const uint32_t bias = Plan::kFused ? bias_of_tile(p, units.first, kColumns) : 0;
            // The second warpgroup lets the first one run its last steps alone, and then
            // has the tensor cores to itself while the first one is in its epilogue. Not
            // where stages also bring a residual, which would come late, nor in work units
            // so short that the first warpgroup could be two of them ahead.
            const bool staggered = Plan::kLast > 0 && unit_steps >= kStages && !p.residual;
            float accum[kPingPongTiles][kColumns / 2];
            int before = 0;
            for (int step = 0; step < unit_steps; ++step, pipe.next()) {
                const auto& stage = shared.stages[pipe.stage];
                shared.full[pipe.stage].wait(pipe.phase % 2);
                if (staggered && group == 1 && step == unit_steps - Plan::kLast)
                    shared.order_barrier[1].wait(order_phase++ % 2);
                multiply(accum, p, stage.x + of_tile * kTileDepth, stage.w, step > 0);
                if (staggered && group == 0 && step == unit_steps - 1 && thread == 0)
                    shared.order_barrier[1].arrive();
                wgmma_wait<1>();  // the previous step is complete
                if (step > 0) release(before);
                before = pipe.stage;
            }
            if (kPingPongTiles > 1 && thread == 0) shared.order_barrier[1 - group].arrive();
            if (Plan::kFused) {
                // Overlaps with the last products. After the first barrier nobody reads the bias of
                // the previous tile.
                warpgroup_barrier(group);
                if (thread < kColumns / 2) shared.bias[group][thread] = bias;
                warpgroup_barrier(group);
            }
            wgmma_wait<0>();
            release(before);
            if (Plan::kSplitK && n >= split_k.whole) {
                store_partial(p.workspace + int64_t(n - split_k.whole) * (kTileRows * kColumns),
                              accum[0], threadIdx.x, kConsumers * kWarpgroup);
                continue;
            }
#pragma unroll
            for (int i = 0; i < kPingPongTiles; ++i) {
                const Span rows = scheduler.rows(place.row, kPingPongTiles > 1 ? i : group, p.rows);
                const OwnPart own = {rows.own, units.own, &maps.edge};
                if constexpr (Plan::kFused) {
                    Residual<typename Plan::Shared, kStages> residual = {shared, pipe, group};
                    epilogue_fused(accum[i], p, shared.bias[group], residual, maps, buffers,
                                   int(place.matrix), rows.first, units.first, stored, own);
                    if (p.residual)
                        pipe.skip(ceil_div(kColumns / 64 / rows_per_unit(p), kChunksPerStage));
                } else if constexpr (Plan::kStores) {
                    epilogue_tma<T>(accum[i], p.scale, buffers, maps.y, int(place.matrix),
                                    rows.first, units.first, group, stored, adds_to_y(p), own);
                    epilogue_rest(accum[i], p, buffers, int(place.matrix), rows.first, units.first,
                                  group, stored, own);
                } else {
                    epilogue(
                        accum[i], p, buffers, place.matrix, rows.first, units.first, group, own);
                }
            }
        }
        if (Plan::kStores) wait_for_stores();
    }
    pair.end();
#endif
}
