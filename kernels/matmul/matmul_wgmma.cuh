// The wgmma versions of matmul, for 16-bit floats on GPUs of compute capability 9.0. TMA fills the
// stages of a pipeline in shared memory, and tensor cores read their operands from there.
#pragma once

#include "dependent_launch.cuh"
#include "matmul_cost.h"
#include "matmul_epilogue.cuh"
#include "stages.cuh"

constexpr int kTileRows = 128;  // of x: two consumer warpgroups of 64
constexpr int kTileDepth = 64;  // of k: 128 bytes
constexpr int kConsumers = kTileRows / 64;

// One pipeline stage: the tiles of x and w for one step of k. A tile either has a line for each
// row, or, where the operand is contiguous along its columns, it consists of boxes of 64 rows with
// a line for each k.
template <class T, int columns>
struct Stage {
    T x[kTileRows * kTileDepth], w[columns * kTileDepth];
};
constexpr int kBox = 64 * kTileRow;  // bytes

// Rows or units of a part of a tile. TMA takes longer for boxes that lie partly outside of a
// tensor, so a part at the edge moves inside, as far as is a multiple of `granule`: it begins at
// `first`, before its own first row or unit, and does not store what belongs to another tile.
struct Span {
    int first, own;

    // Span n of spans of `count` each. granule: 0 if it does not move.
    __host__ __device__ Span(int n, int count, int64_t size, int granule)
        : first(n * count), own(first) {
        const int64_t outside = own < size && granule > 0 ? own + count - size : 0;
        if (outside > 0 && outside / granule * granule <= own)
            first -= int(outside / granule * granule);
    }
};

// The tensor maps. Boxes of y and z are 64 x 64, or 16 x 64 in the fused epilogue, where each warp
// stores its own rows. Boxes of the residual are always 64 x 64. The two halves of z are two
// matrices.
struct Maps {
    CUtensorMap x, w, y, z, residual;
    CUtensorMap edge;  // of y, in boxes of 8 rows

    // The map of a half of z, and its box that belongs to one of y.
    __device__ const CUtensorMap& of_z(int) const { return z; }
    __device__ static BoxAt box_of_z(int half, const BoxAt& y) { return {y.column, y.row, half}; }
};

// What a block of two warpgroups that multiply, and one that fetches, has in shared memory.
template <class Stage, int count>
struct PipelineStorage {
    Stage stages[count];
    EpilogueBuffers epilogue[kConsumers];
    Mbarrier full[count], empty[count];
};

// Whether the residual is y itself: y += scale * x w^T.
template <class T>
__host__ __device__ bool adds_to_y(const Product<T>& p) {
    return p.residual == p.y;
}

template <class T>
__host__ __device__ bool is_plain(const Product<T>& p) {
    return !p.bias && (!p.residual || adds_to_y(p)) && !p.z && p.act == kNone;
}

#if HAS_WGMMA

// Starts the TMA load of half of a tile of `count` rows of x or w that begins at `row`. blocks: 0
// for this block, or a mask of the cluster's blocks to multicast to.
template <int count, class T>
__device__ void fetch_half(T* tile, int half, const CUtensorMap& map, bool by_row, int64_t row,
                           int step, int64_t matrix, Mbarrier& full, unsigned blocks) {
    const auto load = [&](int r, int column, int line) {
        T* const to = tile + (half * (count / 2) + r) * kTileDepth;
        if (blocks == 0) {
            tma_load(to, map, column, line, int(matrix), full);
        } else {
            tma_load_multicast(to, map, column, line, int(matrix), full, blocks);
        }
    };
    if (by_row) {
        load(0, step * kTileDepth, int(row));
    } else if (count == 64) {  // one box, which has both halves
        if (half == 0) load(0, int(row), step * kTileDepth);
    } else {
        for (int r = 0; r < count / 2; r += 64) load(r, int(row) + r, step * kTileDepth);
    }
}

// Issues the products of one stage: each accumulator has 64 rows of x by all columns of the tile.
template <bool kTransX, bool kTransW, class T, int kEach, int N>
__device__ void multiply(float (&accum)[kEach][N], const T* x, const T* w, bool adds) {
    const uint64_t of_x = wgmma_descriptor(x), of_w = wgmma_descriptor(w, kBox);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileDepth / 16; ++k) {
#pragma unroll
        for (int n = 0; n < kEach; ++n)
            wgmma<T, kTransX, kTransW>(accum[n], of_x + n * (kBox >> 4) + k * (kTransX ? 128 : 2),
                                       of_w + k * (kTransW ? 128 : 2), adds || k > 0);
    }
    wgmma_commit();
}
template <class T, int kEach, int N>
__device__ void multiply(float (&accum)[kEach][N], const Product<T>& p, const T* x, const T* w,
                         bool adds) {
    if (p.x.col == 1 && p.w.col == 1) {
        multiply<false, false>(accum, x, w, adds);
    } else if (p.x.col == 1) {
        multiply<false, true>(accum, x, w, adds);
    } else if (p.w.col == 1) {
        multiply<true, false>(accum, x, w, adds);
    } else {
        multiply<true, true>(accum, x, w, adds);
    }
}

#endif

// ---- wgmma: a block of two warpgroups computes 128 x 128 elements of y through a pipeline of four
// stages. A thread refills a stage after all threads have used it.
// Flaw: the tensor cores idle
// while the threads wait for each other, and between the end of one block and the first tiles of
// the next.

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
// Flaw: each block reads all its operands from the L2 cache, and
// neighbouring blocks read the same w.
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

// The coordinates of a tile, counted in tiles.
struct TileAt {
    int matrix, row, column;

    TileAt() = default;
    __device__ TileAt(const TilePlace& place)
        : matrix(int(place.matrix)), row(int(place.row)), column(int(place.column)) {}
};

template <class T, int columns, int pair, bool stores, int ping_pong_tiles = 1, bool fused = false>
struct Plan {
    static constexpr int kColumns = columns;
    static constexpr int kPair = pair;       // cluster size
    static constexpr bool kStores = stores;  // y is stored by TMA
    static constexpr bool kFused =
        fused;  // whether the epilogue fuses bias, activation or residual
    static constexpr bool kSplitK = stores && !fused;  // split-K is allowed
    static constexpr int kPingPongTiles =
        ping_pong_tiles;  // 1: cooperative, all warpgroups share a tile; 2: ping-pong
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

constexpr int kGroupRows = 16;  // tiles of a column that are taken before those of the next column

// How far parts of tiles at the edge of y move inside: multiples of so many rows and units.
struct Granules {
    int rows = 0, units = 0;
};

// The scheduler of tiles for persistent blocks. A pair of blocks has two tiles, one below the
// other. Tiles are grouped by rows for L2 reuse.
struct TileScheduler {
    int batch, pairs, columns, pair;
    int group_rows;  // pairs of a column that are taken before those of the next column
    Granules granules;

    TileScheduler(const TileGrid& grid, int pair, int group_rows, Granules granules = {})
        : batch(int(grid.batch)),
          pairs(int(ceil_div<int64_t>(grid.rows, pair))),
          columns(int(grid.columns)),
          pair(pair),
          group_rows(group_rows),
          granules(granules) {}

    // The rows of half a tile of x, and the units of a tile.
    __host__ __device__ Span rows(int row, int half, int64_t of) const {
        return Span(2 * row + half, kTileRows / 2, of, granules.rows);
    }
    __host__ __device__ Span units(int column, int count, int64_t of) const {
        return Span(column, count, of, granules.units);
    }

    __host__ __device__ int places() const { return batch * pairs * columns; }

    // The tile of block `rank` of a pair at place n; false if there is no such place.
    __device__ bool at(int n, int rank, TilePlace& place) const {
        if (n >= places()) return false;
        const int i = n % (pairs * columns), first = i / (group_rows * columns) * group_rows;
        const int height = smaller(pairs - first, group_rows), within = i - first * columns;
        place = {n / (pairs * columns), (first + within % height) * pair + rank, within / height};
        return true;
    }
};

// Split-K: the first `whole` tiles are multiplied whole. The others are split along k into `splits`
// partial products, which matmul_split_k.cuh adds up. A work unit is a whole tile or one split of a
// tile; units are numbered whole tiles first, then the first split of all other tiles, and so on.
// Steps past the depth read zeros.
struct SplitK {
    int whole = 0x7fffffff, splits = 1;
    int split_tiles = 0;
    int steps = 0;  // of a split

    int work_units(int tiles) const { return split_tiles ? whole + split_tiles * splits : tiles; }

    // The tile of work unit n and its first step.
    __device__ int tile(int n, int& first) const {
        first = 0;
        if (n < whole) return n;
        first = (n - whole) / split_tiles * steps;
        return whole + (n - whole) % split_tiles;
    }
};

#if HAS_WGMMA

// Stores the accumulators of one split as they lie in the registers of `threads` threads, in
// coalesced writes of 16 bytes.
template <int N>
__device__ void store_partial(float* to, const float (&accum)[N], int thread, int threads) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const Vec<float, 4> four = {accum[i], accum[i + 1], accum[i + 2], accum[i + 3]};
        store(to + (int64_t(i / 4) * threads + thread) * 4, four);
    }
}

// The position in the pipeline: the next stage, and how often the pipeline has wrapped around. The
// parity of that phase is what an mbarrier waits for.
template <int count>
struct PipelineState {
    int stage = 0, phase = 0;
    __device__ void next() {
        if (++stage == count) stage = 0, ++phase;
    }
    __device__ void skip(int steps) {
        phase += (stage + steps) / count;
        stage = (stage + steps) % count;
    }
};

// The residual of a tile is loaded by TMA into the stages that follow those of x and w, two chunks
// of 64 columns per stage, with one box per warpgroup for each chunk.
constexpr int kChunksPerStage = 2;

// Called by the producer thread. pipe: the next stage.
template <class Shared, int count>
__device__ void fetch_residual(Shared& shared, PipelineState<count>& pipe, const CUtensorMap& map,
                               int matrix, const int (&rows)[kConsumers], int unit, int chunks) {
    for (int n = 0; n < chunks; n += kChunksPerStage, pipe.next()) {
        Mbarrier& full = shared.full[pipe.stage];
        auto* const boxes = shared.stages[pipe.stage].x;
        const int there = smaller(chunks - n, kChunksPerStage) * kConsumers;
        shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
        full.arrive_expect_tx(there * kBox);
        for (int i = 0; i < there; ++i)
            tma_load(boxes + i * 64 * 64, map, unit + (n + i / kConsumers) * 64,
                     rows[i % kConsumers], matrix, full);
    }
}

// The consumer side of the residual. pipe: its first stage.
template <class Shared, int count>
struct Residual {
    Shared& shared;
    PipelineState<count> pipe;
    int group;

    // Waits for chunk n and returns its box. Chunks must be read in order.
    __device__ const auto* wait_for(int n) const {
        if (n % kChunksPerStage == 0) shared.full[pipe.stage].wait(pipe.phase % 2);
        return shared.stages[pipe.stage].x + (n % kChunksPerStage * kConsumers + group) * 64 * 64;
    }
    // Releases a stage to the producer when the warpgroup has read it.
    __device__ void release(int n, bool last) {
        if (n % kChunksPerStage != kChunksPerStage - 1 && !last) return;
        warpgroup_barrier(group);
        if (threadIdx.x % kWarpgroup == 0) shared.empty[pipe.stage].arrive();
        pipe.next();
    }
};

#endif

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

// ---- launches

// The tensor map of x or w. rows_of_box: rows of a box where a line is a row.
template <class T>
bool make_map(CUtensorMap& map, const Product<T>& p, const Operand<T>& of, int64_t rows,
              int rows_of_box, CUtensorMapL2promotion promotion = kPromotion) {
    if (!reads_in_vectors(of)) return false;
    return of.col == 1 ? make_tensor_map(map, of.data, p.batch, rows, p.depth, of.matrix, of.row,
                                         rows_of_box, promotion)
                       : make_tensor_map(map, of.data, p.batch, p.depth, rows, of.matrix, of.col,
                                         kTileDepth, promotion);
}

// TMA has 32-bit coordinates and takes no empty tensor.
template <class T>
bool fits_tma(const Product<T>& p) {
    const int64_t most = 0x7fffffff;
    return p.rows <= most && p.units <= most / 2 && 0 < p.depth && p.depth <= most &&
           p.batch <= most;
}

template <class T>
bool make_maps(Maps& maps, const Product<T>& p, int columns, bool stores, bool fused = false) {
    if (!fits_tma(p) || (p.act == kSwiglu && p.w.col != 1 && p.units % kVec<T> != 0)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, kTileRows / 2) ||
        !make_map(maps.w, p, p.w, p.units * rows_per_unit(p), columns / 2))
        return false;
    if (!stores) return true;
    if (!is_aligned(p.y, p.z, p.bias, p.residual) || p.units % kVec<T> != 0) return false;
    const int64_t wide = p.units * rows_per_unit(p);
    const auto make_like_y = [&](CUtensorMap& map, const T* at, int rows) {
        return make_tensor_map(map, at, p.batch, p.rows, p.units, p.rows * p.units, p.units, rows);
    };
    return make_like_y(maps.y, p.y, fused ? kWarpRows : 64) &&
           (p.rows % 64 == 0 || make_like_y(maps.edge, p.y, 8)) &&
           (!p.residual || make_like_y(maps.residual, p.residual, 64)) &&
           (!p.z || (p.batch == 1 && make_tensor_map(maps.z, p.z, rows_per_unit(p), p.rows, p.units,
                                                     p.units, wide, kWarpRows)));
}

// Not where y or z would be added to or stored in other boxes, nor for floats (matmul_tf32.cuh).
template <class T>
Granules granules_of(const Product<T>& p, bool stores) {
    if (sizeof(T) != 2 || adds_to_y(p) || p.z) return {};
    return {8, p.units % 8 != 0 ? 0 : stores ? 64 : 8};
}

template <class Plan, class T>
bool launch_plan(const Product<T>& p, int group_rows, cudaStream_t stream, SplitK split_k = {}) {
    const auto kernel = matmul_specialized<T, Plan>;
    Maps maps;
    if (!has_wgmma(kernel, Plan::kThreads) || Plan::kBytes > shared_bytes() ||
        multiprocessors() < Plan::kPair ||
        !make_maps(maps, p, Plan::kColumns, Plan::kStores, Plan::kFused))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const TileGrid grid(p, kTileRows, Plan::kColumns);
    if (grid.tiles() > 0x3fffffff) return false;  // indices are 32-bit
    const TileScheduler scheduler(grid, Plan::kPair, group_rows, granules_of(p, Plan::kStores));
    const int work_units = split_k.work_units(scheduler.places());
    const int pairs = smaller(work_units, multiprocessors() / Plan::kPair);
    launch_secondary(kernel, Plan::kPair, unsigned(pairs * Plan::kPair), dim3(Plan::kThreads),
                     Plan::kBytes, stream, maps, p, scheduler, split_k, work_units);
    return true;
}

template <class T>
bool launch_plain(const Product<T>& p, cudaStream_t stream) {
    using Tile = PlainTile<T>;
    Maps maps;
    if (!has_wgmma(matmul_wgmma<T>, Tile::kThreads) || !make_maps(maps, p, Tile::kColumns, false))
        return false;
    cudaFuncSetAttribute(
        matmul_wgmma<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kBytes);
    const TileGrid grid(p, kTileRows, Tile::kColumns);
    matmul_wgmma<<<grid.tiles(), Tile::kThreads, Tile::kBytes, stream>>>(maps, p, grid);
    return true;
}

template <class T>
bool has_tiles(const Product<T>& p, int columns) {
    if (sizeof(T) == 4) return columns % 128 == 0;
    if (columns == 64) return p.act != kSwiglu;  // each half would be half a box
    return columns % 128 == 0 || (p.act != kSwiglu && p.w.col == 1);
}

// The time of all waves of tiles of this width. Narrower tiles keep more multiprocessors busy.
template <class T>
double cost_of_tiles(const Product<T>& p, int columns) {
    const int64_t tiles = TileGrid(p, kTileRows, columns).tiles();
    const int64_t steps = ceil_div<int64_t>(p.depth, kTileRow / sizeof(T));
    return cost_of_tile(columns, steps) * double(ceil_div<int64_t>(tiles, multiprocessors()));
}

// Whether tiles of 128 columns are faster than those of 256.
template <class T>
bool is_for_narrow_tiles(const Product<T>& p) {
    return cost_of_tiles(p, 128) < cost_of_tiles(p, 256);
}

// Launches whole tiles of the fastest width; the wider one if two are equally fast.
template <bool fused, class T>
bool launch_best_tiles(const Product<T>& p, int group_rows, cudaStream_t stream) {
    int best = 256;
    for (int columns : kColumnsOfTiles)
        if (has_tiles(p, columns) && cost_of_tiles(p, columns) < cost_of_tiles(p, best))
            best = columns;
    if (best == 64) return launch_plan<Plan<T, 64, 1, true, 1, fused>>(p, group_rows, stream);
    if (best == 96) return launch_plan<Plan<T, 96, 1, false>>(p, group_rows, stream);
    if (best == 128) return launch_plan<Plan<T, 128, 1, true, 1, fused>>(p, group_rows, stream);
    if (best == 160) return launch_plan<Plan<T, 160, 1, false>>(p, group_rows, stream);
    if (best == 192) return launch_plan<Plan<T, 192, 1, true, 1, fused>>(p, group_rows, stream);
    if (best == 224) return launch_plan<Plan<T, 224, 1, false>>(p, group_rows, stream);
    return launch_plan<Plan<T, 256, 1, true, 1, fused>>(p, group_rows, stream);
}

// For K <= 1536, ping-pong accumulation into y is 4 to 8% faster; for K = 2048 it is up to 8%
// slower. Measured on an H200.
template <class T>
bool prefers_ping_pong(const Product<T>& p) {
    const int64_t tiles = TileGrid(p, kTileRows, 128).tiles();
    return adds_to_y(p) && p.depth <= 1536 && tiles >= 4 * multiprocessors();
}

// Version 0 is wgmma. False if none of the versions fits this GPU or the layout of x and w.
template <class T>
bool launch_wgmma(const Product<T>& p, int64_t version, cudaStream_t stream) {
    enum { kPlain, kSpecialized, kCluster, kStores };
    if (version >= kStores) {
        if (is_plain(p)) {
            if (prefers_ping_pong(p) &&
                launch_plan<Plan<T, 128, 1, true, 2>>(p, kGroupRows, stream))
                return true;
            if (launch_best_tiles<false>(p, kGroupRows, stream)) return true;
        } else {
            if (launch_best_tiles<true>(p, kGroupRows, stream)) return true;
            if (launch_plan<Plan<T, 128, 1, false, 2>>(p, kGroupRows, stream)) return true;
        }
    }
    if (version >= kCluster && launch_plan<Plan<T, 256, 2, false>>(p, 1, stream)) return true;
    if (version >= kSpecialized && launch_plan<Plan<T, 256, 1, false>>(p, 1, stream)) return true;
    return launch_plain(p, stream);
}
