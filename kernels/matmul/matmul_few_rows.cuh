// Products of few rows of x, as when a model generates one token at a time. They read all of w, and
// nothing takes as long as that.
//
// A block has 48 to 128 rows of w for a tile of y, and all of k or one split of it; the other
// blocks of its cluster have the other splits. So all multiprocessors read equal shares of w.
// Blocks are persistent: the weights of the next tile arrive during the epilogue of this one. At
// the end of a tile, the blocks of a cluster exchange their partial accumulators through
// distributed shared memory; each block adds up those of its part of the tile, always in the same
// order, and runs the epilogue.
//
// Such products often follow each other. Each lets the next kernel begin early (programmatic
// dependent launch, dependent_launch.cuh). That one initialises its barriers, prefetches its first
// weights to the L2 cache, and then waits for the end of this one.
//
// What depends on types and sizes is in the class `Consumer`, of which every consumer thread has an
// object:
//
//   kRows, kUnits, kGroups      most rows of x; rows of w of a tile; consumer warpgroups
//   kDepth, kStages             k per stage; pipeline stages
//   kBlocksPerSm                resident blocks of a multiprocessor
//   kMaxSplits                  split-K over the blocks of a cluster, at most
//   kSlicedK                    sliced-K: warpgroups of a block that take steps of k in turn
//   kPending                    products that may be in flight when multiply returns
//   kReallocatesRegisters       whether the producer gives registers to the consumers
//   kThreadsRead                whether threads read a stage, too, and not wgmma alone
//   kGates                      distance to the chunks of swiglu's gates; 0: they share a chunk
//   Stage                       tiles of w and x with fetch_x and fetch_w, which start TMA loads;
//                               fetch_w calls `load` with the place of each box in a stage and in w
//   begin(p)                    loads operands of the epilogue, before the mainloop
//   multiply(stage, p, step)    adds the products of a stage to `accum`
//   epilogue(p, .., c, accum)   makes y of chunk c, four accumulators
//
// is_linear(p), z_of(p, ..), epilogue_element(p, ..) and rows_per_unit(p), as in
// matmul_product.cuh, must exist for the type of the product. The consumers of matmul are in
// matmul_few_rows_configs.cuh, and what all consumers share is in matmul_few_rows_consumer.cuh.
#pragma once

#include "dependent_launch.cuh"
#include "matmul_few_rows_plan.h"
#include "matmul_pipeline.cuh"

template <class Consumer>
constexpr int kAccumChunks = sizeof(Consumer::accum) / sizeof(float) / 4;  // of a consumer thread

// Consumer threads of a block. The producer warp, or warpgroup where registers are reallocated,
// follows them.
template <class Consumer>
constexpr int kConsumerThreads = Consumer::kGroups * kWarpgroup;
template <class Consumer>
constexpr int kFewRowsThreads =
    kConsumerThreads<Consumer> + (Consumer::kReallocatesRegisters ? kWarpgroup : kWarp);
template <class Consumer>
constexpr int kThreadsPerSlice =
    kConsumerThreads<Consumer> / Consumer::kSlicedK;  // threads of a slice of k

template <class Consumer>
struct FewRowsShared {
    typename Consumer::Stage stages[Consumer::kStages];
    // Slots for the chunks that each split reduces: one from every split.
    static constexpr int kMost = Consumer::kMaxSplits * Consumer::kSlicedK,
                         kChunks = kAccumChunks<Consumer>;
    static constexpr int kSlots = kMost == 1 ? 1 : (kChunks + kMost - 1) / kMost * kMost;
    Vec<float, 4> partials[Consumer::kSlicedK][kSlots][kThreadsPerSlice<Consumer>];
    Mbarrier full[Consumer::kStages], empty[Consumer::kStages];
    Mbarrier sent[Consumer::kSlicedK];  // partials for a slice have arrived
    Mbarrier read[Consumer::kSlicedK];  // all splits have read what this one sent
    static constexpr int bytes() { return sizeof(FewRowsShared) + kTileAlign; }
};

// The tiles of y: per matrix, in all, one below the other, and the rows of x of a tile.
struct FewRowsTiles {
    int of_matrix, count, high, rows;
};

// The place of a tile: its rows of x, and its number along w.
struct FewRowsTile {
    int matrix, row, end, column;
};

// The work of a block: which tiles, and which steps of k of each.
struct FewRowsWork {
    FewRowsTiles tiles;
    int begin, clusters;           // the first tile of this cluster; clusters
    int splits, rank, first, end;  // splits of k; that of this block; its steps

    __device__ FewRowsWork(const FewRowsTiles& tiles, int steps, int splits)
        : tiles(tiles),
          begin(blockIdx.x / splits),
          clusters(gridDim.x / splits),
          splits(splits),
          rank(blockIdx.x % splits) {
        first = steps * rank / splits;
        end = steps * (rank + 1) / splits;
    }

    __device__ FewRowsTile tile(int n, int64_t rows) const {
        const int in_matrix = n % tiles.of_matrix, row = in_matrix % tiles.high * tiles.rows;
        const int end = int(smaller<int64_t>(row + tiles.rows, rows));
        return {n / tiles.of_matrix, row, end, in_matrix / tiles.high};
    }
};

#if HAS_WGMMA

// For a linear epilogue: two elements of y, and their store.
template <class P>
__device__ uint32_t pair_of_z(const P& p, int64_t unit, int64_t next, float sum, float next_sum) {
    using T = std::remove_pointer_t<decltype(p.y)>;
    const int64_t last = p.units - 1;
    return rounded_pair<T>(
        z_of(p, sum, smaller(unit, last)), z_of(p, next_sum, smaller(next, last)));
}
template <class P>
__device__ void store_pair(const P& p, const FewRowsTile& tile, int row, int unit, uint32_t pair) {
    if (row >= tile.end || unit >= p.units) return;
    *reinterpret_cast<uint32_t*>(p.y + (tile.matrix * p.rows + row) * p.units + unit) = pair;
}

// The prologue of the producer thread prefetches the first weights to the L2 cache, where the
// primary kernel may still write: a quarter of the steps of the block, at most 16, since more would
// take longer than waiting.
template <class Consumer, class P>
__device__ void prefetch_few_rows(const Maps& maps, const P& p, const FewRowsWork& work) {
    const int steps = work.end - work.first;
    const int tiles = smaller(ceil_div(work.tiles.count - work.begin, work.clusters), 4);
    const int ahead = smaller(steps * tiles / 4, 16);
    const FewRowsTile tile = work.tile(work.begin, p.rows);
#pragma unroll 1
    for (int n = 0; n < ahead; ++n)
        Consumer::Stage::fetch_w(p, tile.column, work.first + n, [&](int, int column, int row) {
            tma_load_to_l2(maps.w, column, row, tile.matrix);
        });
}

// The producer thread: loads all stages.
template <class Consumer, class P>
__device__ void produce_few_rows(FewRowsShared<Consumer>& shared, const Maps& maps, const P& p,
                                 const FewRowsWork& work) {
    using Stage = typename Consumer::Stage;
    constexpr int kBytesOfW = sizeof(Stage) - Stage::kBoxesOfX * Consumer::kRows * kTileRow;
    const int bytes = kBytesOfW + Stage::kBoxesOfX * work.tiles.rows * kTileRow;
    PipelineState<Consumer::kStages> pipe;
    for (int n = work.begin; n < work.tiles.count; n += work.clusters) {
        const FewRowsTile tile = work.tile(n, p.rows);
#pragma unroll 1
        for (int step = work.first; step < work.end; ++step, pipe.next()) {
            Stage& stage = shared.stages[pipe.stage];
            Mbarrier& full = shared.full[pipe.stage];
            shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
            if constexpr (Consumer::kThreadsRead)
                tma_writes_done();  // order the threads' reads before the load
            full.arrive_expect_tx(bytes);
            stage.fetch_x(maps, step, tile, full);
            Stage::fetch_w(p, tile.column, step, [&](int at, int column, int row) {
                tma_load_once(
                    reinterpret_cast<char*>(stage.w) + at, maps.w, column, row, tile.matrix, full);
            });
        }
    }
}

// Zeroes the rows of a stage that x does not have. TMA could fill them with zeros, but takes longer
// for that than for existing rows.
template <class Consumer>
__device__ void zero_missing_rows(FewRowsShared<Consumer>& shared, int rows) {
    constexpr int kVectors = kTileRow / kVecBytes;  // of a row
    constexpr int kBox = Consumer::kRows * kVectors;
    for (auto& stage : shared.stages) {
        auto* const vectors = reinterpret_cast<Vec<float, 4>*>(stage.x);
        for (int box = 0; box < Consumer::Stage::kBoxesOfX * kBox; box += kBox)
            for (int i = rows * kVectors + threadIdx.x; i < kBox; i += kConsumerThreads<Consumer>)
                vectors[box + i] = {};
    }
    tma_writes_done();
    asm volatile("bar.sync 1, %0;" ::"n"(kConsumerThreads<Consumer>) : "memory");
}

// The split of k that a warpgroup has, over the blocks of the cluster (split-K) and the warpgroups
// of a block (sliced-K).
template <class Consumer>
struct FewRowsSplit {
    int splits, rank, group, thread;

    __device__ explicit FewRowsSplit(const FewRowsWork& work)
        : splits(work.splits * Consumer::kSlicedK),
          group(__shfl_sync(0xffffffff, threadIdx.x / kThreadsPerSlice<Consumer>, 0)),
          thread(threadIdx.x % kThreadsPerSlice<Consumer>) {
        rank = work.rank * Consumer::kSlicedK + group;
    }
};

// Sends each chunk of accumulators to the split that reduces it, round robin, and waits for what
// the others send. Each chunk has a slot for every split.
template <class Consumer>
__device__ void exchange_partials(FewRowsShared<Consumer>& shared, const Consumer& consumer,
                                  const FewRowsSplit<Consumer>& split, int turn) {
    constexpr int kChunks = kAccumChunks<Consumer>;
    if (split.splits == 1) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) shared.partials[0][c][split.thread] = consumer.chunk(c);
        return;
    }
    if (turn > 0) shared.read[split.group].wait_for_cluster((turn - 1) % 2);
    int owner = 0, slot = split.rank;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const int group = owner % Consumer::kSlicedK;
        shared.sent[group].st_async(&shared.partials[group][slot][split.thread], consumer.chunk(c),
                                    owner / Consumer::kSlicedK);
        if (++owner == split.splits) owner = 0, slot += split.splits;
    }
    if (split.thread == 0) {
        const int own = (kChunks + split.splits - 1 - split.rank) / split.splits;
        shared.sent[split.group].arrive_expect_tx(
            own * split.splits * sizeof(shared.partials[0][0]));
    }
    shared.sent[split.group].wait_for_cluster(turn % 2);
}

// Chunk n of this split: the sum over all splits in their order.
template <class Consumer>
__device__ Vec<float, 4> reduce_splits(const FewRowsShared<Consumer>& shared,
                                       const FewRowsSplit<Consumer>& split, int n) {
    const auto& partials = shared.partials[split.group];
    Vec<float, 4> all = partials[n * split.splits][split.thread];
#pragma unroll 1
    for (int rank = 1; rank < split.splits; ++rank) {
        const Vec<float, 4> more = partials[n * split.splits + rank][split.thread];
#pragma unroll
        for (int i = 0; i < 4; ++i) all[i] += more[i];
    }
    return all;
}

// The epilogue of the chunks that this split reduces. It is a short loop rather than unrolled code:
// a block with one tile runs it once, and instructions come from memory like data.
template <class Consumer, class P>
__device__ void epilogue_split_k(FewRowsShared<Consumer>& shared, const P& p,
                                 const FewRowsTile& tile, const Consumer& consumer,
                                 const FewRowsWork& work, int turn, bool more) {
    const FewRowsSplit<Consumer> split(work);
    exchange_partials(shared, consumer, split, turn);
    if (is_linear(p) && p.units % 2 == 0 && is_aligned(p.y)) {
#pragma unroll 2
        for (int c = split.rank, n = 0; c < kAccumChunks<Consumer>; c += split.splits, ++n)
            consumer.epilogue_linear(p, tile, c, reduce_splits(shared, split, n));
    } else {
        const bool gated = Consumer::kGates > 0 && rows_per_unit(p) == 2;
#pragma unroll 1
        for (int c = split.rank, n = 0; c < (gated ? Consumer::kGates : kAccumChunks<Consumer>);
             c += split.splits, ++n) {
            Vec<float, 4> gates = {};
            if (gated) gates = reduce_splits(shared, split, n + Consumer::kGates / split.splits);
            consumer.epilogue(p, tile, c, reduce_splits(shared, split, n), gates);
        }
    }
    if (split.splits == 1 || !more) return;
    __syncwarp();
    const int lane = threadIdx.x % kWarp;
    if (lane < split.splits)
        shared.read[lane % Consumer::kSlicedK].arrive_in(lane / Consumer::kSlicedK);
}

// The epilogue where a block has all of k: from registers.
template <class Consumer, class P>
__device__ void epilogue_whole(const P& p, const FewRowsTile& tile, const Consumer& consumer) {
    if (is_linear(p) && p.units % 2 == 0 && is_aligned(p.y)) {
#pragma unroll
        for (int c = 0; c < kAccumChunks<Consumer>; ++c)
            consumer.epilogue_linear(p, tile, c, consumer.chunk(c));
        return;
    }
    const bool gated = Consumer::kGates > 0 && rows_per_unit(p) == 2;
#pragma unroll 1
    for (int c = 0; c < (gated ? Consumer::kGates : kAccumChunks<Consumer>); ++c) {
        Vec<float, 4> gates = {}, accum;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            accum[i] = select_register(consumer.chunks(), c, i);
            if (gated) gates[i] = select_register(consumer.chunks(), c + Consumer::kGates, i);
        }
        consumer.epilogue(p, tile, c, accum, gates);
    }
}

// The mainloop of the consumers. A stage is released when the products of the next one have been
// issued.
template <class Consumer, class P>
__device__ void consume_few_rows(FewRowsShared<Consumer>& shared, const P& p,
                                 const FewRowsWork& work) {
    // A consumer must wait for a stage in each phase. If it skipped one, the parity that it waits
    // for would be that of a phase long complete.
    static_assert(Consumer::kStages % Consumer::kSlicedK == 0);
    const int lane = threadIdx.x % kWarp;
    const int group = __shfl_sync(0xffffffff, threadIdx.x / kThreadsPerSlice<Consumer>, 0);
    PipelineState<Consumer::kStages> pipe;
    int turn = 0;
    const auto release = [&](int stage) {
        __syncwarp();
        if (lane == 0) shared.empty[stage].arrive();
    };
    for (int n = work.begin; n < work.tiles.count; n += work.clusters, ++turn) {
        const FewRowsTile tile = work.tile(n, p.rows);
        Consumer consumer(tile.column);
        consumer.begin(p);
        int before = 0;
#pragma unroll 1
        for (int step = work.first; step < work.end; ++step, pipe.next()) {
            if (Consumer::kSlicedK > 1 && (step - work.first) % Consumer::kSlicedK != group)
                continue;
            shared.full[pipe.stage].wait(pipe.phase % 2);
            consumer.multiply(shared.stages[pipe.stage], p, step);
            if (Consumer::kPending == 0) {
                release(pipe.stage);
            } else {
                wgmma_wait<Consumer::kPending>();
                if (step > work.first) release(before);
                before = pipe.stage;
            }
        }
        if (Consumer::kPending > 0) {
            wgmma_wait<0>();
            release(before);
        }
        if constexpr (Consumer::kMaxSplits * Consumer::kSlicedK > 1) {
            epilogue_split_k(
                shared, p, tile, consumer, work, turn, n + work.clusters < work.tiles.count);
        } else {
            epilogue_whole(p, tile, consumer);
        }
    }
}

#endif

// count: of the tiles of all matrices.
template <class Consumer, class P>
__global__ void WGMMA_KERNEL_IN_BLOCKS(kFewRowsThreads<Consumer>, Consumer::kBlocksPerSm)
    matmul_few_rows(const __grid_constant__ Maps maps, P p, FewRowsTiles tiles, int splits) {
#if HAS_WGMMA
    constexpr int kConsuming = kConsumerThreads<Consumer>, kWarps = kConsuming / kWarp;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<FewRowsShared<Consumer>>(dynamic);
    const FewRowsWork work(tiles, int(ceil_div<int64_t>(p.depth, Consumer::kDepth)), splits);
    launch_dependents();
    if (threadIdx.x == 0) {
        init_pipeline(shared, kWarps / Consumer::kSlicedK);
        for (Mbarrier& sent : shared.sent) sent.init();
        for (Mbarrier& read : shared.read) read.init(kWarps * splits);
    }
    __syncthreads();
    if (splits > 1) cluster_arrive();
    // The shuffle tells the compiler that the value is uniform in a warp.
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / kWarp, 0);
    const bool first = threadIdx.x % kWarp == 0;
    if (warp < kWarps) zero_missing_rows(shared, tiles.rows);
    if (warp == kWarps && first) prefetch_few_rows<Consumer>(maps, p, work);
    __syncwarp();
    grid_dependency_wait();
    if (splits > 1) cluster_wait();  // all blocks of the cluster have initialised their barriers
    if (warp < kWarps) {
        if constexpr (Consumer::kReallocatesRegisters) warpgroup_reg_alloc<232>();
        consume_few_rows(shared, p, work);
    } else {
        if constexpr (Consumer::kReallocatesRegisters) warpgroup_reg_dealloc<40>();
        const bool fetches = first && (!Consumer::kReallocatesRegisters || warp == kWarps);
        if (fetches) produce_few_rows(shared, maps, p, work);
    }
#endif
}

// Whether the device can run the kernel.
template <class Consumer, class P>
bool can_few_rows() {
    return has_wgmma(matmul_few_rows<Consumer, P>, kFewRowsThreads<Consumer>) &&
           FewRowsShared<Consumer>::bytes() <= shared_bytes();
}

template <class Consumer>
int64_t tiles_high(int64_t rows, const FewRowsCut& cut) {
    return cut.row_tiles > 0 ? cut.row_tiles : ceil_div<int64_t>(rows, Consumer::kRows);
}

// The rows of x of a tile. Tiles below one another share the rows evenly, because TMA spends time
// on rows of a box that do not exist.
template <class Consumer>
int rows_of_tile(int64_t rows, const FewRowsCut& cut = {}) {
    return int(ceil_div<int64_t>(rows, tiles_high<Consumer>(rows, cut)));
}

// wide: rows of w. False if there are more tiles than 32 bits count.
template <class Consumer, class P>
bool launch_few_rows(const P& p, const Maps& maps, int64_t batch, int64_t wide, cudaStream_t stream,
                     const FewRowsCut& cut = {}) {
    const auto kernel = matmul_few_rows<Consumer, P>;
    constexpr int bytes = FewRowsShared<Consumer>::bytes();
    const int64_t high = tiles_high<Consumer>(p.rows, cut);
    const int64_t tiles = ceil_div<int64_t>(wide, Consumer::kUnits) * high, count = batch * tiles;
    if (count > 0x3fffffff) return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const int64_t steps = ceil_div<int64_t>(p.depth, Consumer::kDepth);
    const int64_t most = multiprocessors() * Consumer::kBlocksPerSm;
    int splits =
        cut.splits > 0 ? cut.splits : few_rows_splits(count, steps, most, Consumer::kMaxSplits);
    if (splits < Consumer::kSlicedK) splits = Consumer::kSlicedK;  // st.async needs a cluster
    if (most < splits) return false;
    const int64_t clusters = smaller(count, most / splits);
    const FewRowsTiles of_y = {
        int(tiles), int(count), int(high), rows_of_tile<Consumer>(p.rows, cut)};
    launch_secondary(kernel, splits, unsigned(clusters * splits), dim3(kFewRowsThreads<Consumer>),
                     bytes, stream, maps, p, of_y, splits);
    return true;
}
