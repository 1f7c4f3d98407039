// Products of few rows of x, as a model has them that writes one token after the other. All of w is
// read for them, and nothing takes as long as that.
//
// A block has 48 to 128 rows of w for a tile of y, and all of k, or a part of it; the blocks of a
// cluster have the other parts. So every multiprocessor reads w, and all of them as much. They
// stay, and take tile after tile; the next one's weights arrive while one is finished. At a tile's
// end each block sends its sums to who finishes them, who adds them up, always in the same order.
//
// One product of these often follows the other. So each lets the next kernel of its kind begin
// meanwhile (dependent_launch.cuh). That one makes itself ready, has its first weights brought to
// the L2 cache, and waits for the end of this one.
//
// What depends on types and sizes is in `Few`, which each of a block's multiplying threads has:
//
//   kRows, kUnits, kGroups      the most rows of x; rows of w of a tile; warpgroups that multiply
//   kDepth, kStages, kAtOnce    of k in a stage; stages of a block; blocks of a multiprocessor
//   kMostParts, kInTurn         of k, of a cluster; warpgroups of a block that take steps in turn
//   kPending                    products that may go on when multiply returns
//   kTakesRegisters             whether those who fetch give them to those who multiply
//   kThreadsRead                whether threads read a stage, too, and not wgmma alone
//   kGates                      where the gates of swiglu have chunks of their own: how far behind
//   Stage                       tiles of w and x, which fetch_x and fetch_w ask TMA for; fetch_w
//                               calls `load` with the place of each box in a stage and in w
//   begin(p)                    asks for what the end will take, before the products
//   multiply(stage, p, step)    adds the products to `totals`
//   finish(p, .., c, sums)      makes y of chunk c, four of the totals
//
// is_linear(p), z_of(p, ..), put(p, ..) and halves(p), as in matmul_product.cuh, are there for the
// type of the product. Those of matmul are in matmul_few_rows_tiles.cuh.
#pragma once

#include "dependent_launch.cuh"
#include "matmul_wgmma.cuh"

template <class Few>
constexpr int kFewChunks = sizeof(Few::totals) / sizeof(float) / 4;  // of a thread's sums

// The threads of a block that multiply, before those of the warp that fetches, or of its warpgroup
// where that gives registers away.
template <class Few>
constexpr int kFewRowsConsumers = Few::kGroups * kWarpgroup;
template <class Few>
constexpr int kFewRowsThreads =
    kFewRowsConsumers<Few> + (Few::kTakesRegisters ? kWarpgroup : kWarp);
template <class Few>
constexpr int kFewOfPart = kFewRowsConsumers<Few> / Few::kInTurn;  // that multiply a step

template <class Few>
struct FewRowsShared {
    typename Few::Stage stages[Few::kStages];
    // The chunks that each part of k in this block finishes: of each, the sums of all parts.
    static constexpr int kMost = Few::kMostParts * Few::kInTurn, kChunks = kFewChunks<Few>;
    static constexpr int kSlots = kMost == 1 ? 1 : (kChunks + kMost - 1) / kMost * kMost;
    Vec<float, 4> sums[Few::kInTurn][kSlots][kFewOfPart<Few>];
    Mbarrier full[Few::kStages], empty[Few::kStages];
    Mbarrier sent[Few::kInTurn];  // to such a part, of a tile
    Mbarrier read[Few::kInTurn];  // by all parts, what this one has sent
    static constexpr int bytes() { return sizeof(FewRowsShared) + kTileAlign; }
};

// The tiles of y: of a matrix, of all matrices, how many lie below one another, and the rows of x
// that each of these has.
struct FewRowsTiles {
    int of_matrix, count, high, rows;
};

// Where a tile is: its rows of x, and its number among those of w.
struct FewRowsTile {
    int matrix, row, end, column;
};

// Which tiles, and which steps of k of each, are the work of a block.
struct FewRowsShare {
    FewRowsTiles tiles;
    int begin, clusters;          // the first tile of this block's cluster; how many of these
    int parts, part, first, end;  // of k; this block's; its steps

    __device__ FewRowsShare(const FewRowsTiles& tiles, int steps, int parts)
        : tiles(tiles),
          begin(blockIdx.x / parts),
          clusters(gridDim.x / parts),
          parts(parts),
          part(blockIdx.x % parts) {
        first = steps * part / parts;
        end = steps * (part + 1) / parts;
    }

    __device__ FewRowsTile tile(int n, int64_t rows) const {
        const int in_matrix = n % tiles.of_matrix, row = in_matrix % tiles.high * tiles.rows;
        const int end = int(smaller<int64_t>(row + tiles.rows, rows));
        return {n / tiles.of_matrix, row, end, in_matrix / tiles.high};
    }
};

#if HAS_WGMMA

// Where y is linear in the sums: two of its elements, and where they go.
template <class P>
__device__ uint32_t pair_of_z(const P& p, int64_t unit, int64_t next, float sum, float next_sum) {
    using T = std::remove_pointer_t<decltype(p.y)>;
    const int64_t last = p.units - 1;
    return rounded_pair<T>(
        z_of(p, sum, smaller(unit, last)), z_of(p, next_sum, smaller(next, last)));
}
template <class P>
__device__ void put_pair(const P& p, const FewRowsTile& tile, int row, int unit, uint32_t pair) {
    if (row >= tile.end || unit >= p.units) return;
    *reinterpret_cast<uint32_t*>(p.y + (tile.matrix * p.rows + row) * p.units + unit) = pair;
}

// What one thread does: it has the first weights brought to the L2 cache, which changes nothing for
// what the primary kernel may still write there: a quarter of a block's steps, but no more than 16,
// for more would take longer than to wait;
template <class Few, class P>
__device__ void ask_few_rows_ahead(const Maps& maps, const P& p, const FewRowsShare& share) {
    const int steps = share.end - share.first;
    const int tiles = smaller(ceil_div(share.tiles.count - share.begin, share.clusters), 4);
    const int ahead = smaller(steps * tiles / 4, 16);
    const FewRowsTile tile = share.tile(share.begin, p.rows);
#pragma unroll 1
    for (int n = 0; n < ahead; ++n)
        Few::Stage::fetch_w(p, tile.column, share.first + n, [&](int, int column, int row) {
            tma_load_to_l2(maps.w, column, row, tile.matrix);
        });
}

// and then it asks for all that the others multiply.
template <class Few, class P>
__device__ void fetch_few_rows(FewRowsShared<Few>& shared, const Maps& maps, const P& p,
                               const FewRowsShare& share) {
    using Stage = typename Few::Stage;
    constexpr int kBytesOfW = sizeof(Stage) - Stage::kBoxesOfX * Few::kRows * kTileRow;
    const int bytes = kBytesOfW + Stage::kBoxesOfX * share.tiles.rows * kTileRow;
    Ring<Few::kStages> ring;
    for (int n = share.begin; n < share.tiles.count; n += share.clusters) {
        const FewRowsTile tile = share.tile(n, p.rows);
#pragma unroll 1
        for (int step = share.first; step < share.end; ++step, ring.next()) {
            Stage& stage = shared.stages[ring.stage];
            Mbarrier& full = shared.full[ring.stage];
            shared.empty[ring.stage].wait((ring.round + 1) % 2);
            if constexpr (Few::kThreadsRead) tma_writes_done();  // the threads' reads come first
            full.arrive_expect_tx(bytes);
            stage.fetch_x(maps, step, tile, full);
            Stage::fetch_w(p, tile.column, step, [&](int at, int column, int row) {
                tma_load_once(
                    reinterpret_cast<char*>(stage.w) + at, maps.w, column, row, tile.matrix, full);
            });
        }
    }
}

// Makes the rows of x zeros that a stage has and x does not.
// TMA could read them as zeros, too, but takes longer for that than for rows that there are.
template <class Few>
__device__ void clear_other_rows(FewRowsShared<Few>& shared, int rows) {
    constexpr int kVectors = kTileRow / kVecBytes;  // of a row
    constexpr int kBox = Few::kRows * kVectors;
    for (auto& stage : shared.stages) {
        auto* const vectors = reinterpret_cast<Vec<float, 4>*>(stage.x);
        for (int box = 0; box < Few::Stage::kBoxesOfX * kBox; box += kBox)
            for (int i = rows * kVectors + threadIdx.x; i < kBox; i += kFewRowsConsumers<Few>)
                vectors[box + i] = {};
    }
    tma_writes_done();
    asm volatile("bar.sync 1, %0;" ::"n"(kFewRowsConsumers<Few>) : "memory");
}

// Who has which part of k: the blocks of a cluster, and in each of them the warpgroups that take
// steps in turn.
template <class Few>
struct FewRowsPart {
    int parts, part, group, thread;

    __device__ explicit FewRowsPart(const FewRowsShare& share)
        : parts(share.parts * Few::kInTurn),
          group(__shfl_sync(0xffffffff, threadIdx.x / kFewOfPart<Few>, 0)),
          thread(threadIdx.x % kFewOfPart<Few>) {
        part = share.part * Few::kInTurn + group;
    }
};

// Sends each chunk of the sums to the part that finishes it, in turn, and waits for what the others
// send. Chunk n of a part has a slot for each of the parts.
template <class Few>
__device__ void send_sums(FewRowsShared<Few>& shared, const Few& few, const FewRowsPart<Few>& who,
                          int turn) {
    constexpr int kChunks = kFewChunks<Few>;
    if (who.parts == 1) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) shared.sums[0][c][who.thread] = few.chunk(c);
        return;
    }
    if (turn > 0) shared.read[who.group].wait_for_cluster((turn - 1) % 2);
    int owner = 0, slot = who.part;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const int group = owner % Few::kInTurn;
        shared.sent[group].st_async(
            &shared.sums[group][slot][who.thread], few.chunk(c), owner / Few::kInTurn);
        if (++owner == who.parts) owner = 0, slot += who.parts;
    }
    if (who.thread == 0) {
        const int own = (kChunks + who.parts - 1 - who.part) / who.parts;
        shared.sent[who.group].arrive_expect_tx(own * who.parts * sizeof(shared.sums[0][0]));
    }
    shared.sent[who.group].wait_for_cluster(turn % 2);
}

// Chunk n of this part, the sum over all of them in their order.
template <class Few>
__device__ Vec<float, 4> add_parts(const FewRowsShared<Few>& shared, const FewRowsPart<Few>& who,
                                   int n) {
    const auto& sums = shared.sums[who.group];
    Vec<float, 4> all = sums[n * who.parts][who.thread];
#pragma unroll 1
    for (int part = 1; part < who.parts; ++part) {
        const Vec<float, 4> more = sums[n * who.parts + part][who.thread];
#pragma unroll
        for (int i = 0; i < 4; ++i) all[i] += more[i];
    }
    return all;
}

// Makes y of the chunks that this block finishes. That is a loop, though a short one: a block that
// has one tile runs it once, and instructions come from memory as data does.
template <class Few, class P>
__device__ void finish_parts(FewRowsShared<Few>& shared, const P& p, const FewRowsTile& tile,
                             const Few& few, const FewRowsShare& share, int turn, bool more) {
    const FewRowsPart<Few> who(share);
    send_sums(shared, few, who, turn);
    if (is_linear(p) && p.units % 2 == 0 && is_aligned(p.y)) {
#pragma unroll 2
        for (int c = who.part, n = 0; c < kFewChunks<Few>; c += who.parts, ++n)
            few.finish_linear(p, tile, c, add_parts(shared, who, n));
    } else {
        const bool gated = Few::kGates > 0 && halves(p) == 2;
#pragma unroll 1
        for (int c = who.part, n = 0; c < (gated ? Few::kGates : kFewChunks<Few>);
             c += who.parts, ++n) {
            Vec<float, 4> gates = {};
            if (gated) gates = add_parts(shared, who, n + Few::kGates / who.parts);
            few.finish(p, tile, c, add_parts(shared, who, n), gates);
        }
    }
    if (who.parts == 1 || !more) return;
    __syncwarp();
    const int lane = threadIdx.x % kWarp;
    if (lane < who.parts) shared.read[lane % Few::kInTurn].arrive_in(lane / Few::kInTurn);
}

// The same of sums over all of k, from a thread's registers.
template <class Few, class P>
__device__ void finish_whole(const P& p, const FewRowsTile& tile, const Few& few) {
    if (is_linear(p) && p.units % 2 == 0 && is_aligned(p.y)) {
#pragma unroll
        for (int c = 0; c < kFewChunks<Few>; ++c) few.finish_linear(p, tile, c, few.chunk(c));
        return;
    }
    const bool gated = Few::kGates > 0 && halves(p) == 2;
#pragma unroll 1
    for (int c = 0; c < (gated ? Few::kGates : kFewChunks<Few>); ++c) {
        Vec<float, 4> gates = {}, sums;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sums[i] = taken(few.chunks(), c, i);
            if (gated) gates[i] = taken(few.chunks(), c + Few::kGates, i);
        }
        few.finish(p, tile, c, sums, gates);
    }
}

// What the warpgroups do. A stage is given back when the products of the next one have begun.
template <class Few, class P>
__device__ void multiply_few_rows(FewRowsShared<Few>& shared, const P& p,
                                  const FewRowsShare& share) {
    // Who waits for a stage waits in each of its rounds: after one that it left out, the parity
    // that it waits for is that of the round before the last one, which is over already.
    static_assert(Few::kStages % Few::kInTurn == 0);
    const int lane = threadIdx.x % kWarp;
    const int group = __shfl_sync(0xffffffff, threadIdx.x / kFewOfPart<Few>, 0);
    Ring<Few::kStages> ring;
    int turn = 0;
    const auto done = [&](int stage) {
        __syncwarp();
        if (lane == 0) shared.empty[stage].arrive();
    };
    for (int n = share.begin; n < share.tiles.count; n += share.clusters, ++turn) {
        const FewRowsTile tile = share.tile(n, p.rows);
        Few few(tile.column);
        few.begin(p);
        int before = 0;
#pragma unroll 1
        for (int step = share.first; step < share.end; ++step, ring.next()) {
            if (Few::kInTurn > 1 && (step - share.first) % Few::kInTurn != group) continue;
            shared.full[ring.stage].wait(ring.round % 2);
            few.multiply(shared.stages[ring.stage], p, step);
            if (Few::kPending == 0) {
                done(ring.stage);
            } else {
                wgmma_wait<Few::kPending>();
                if (step > share.first) done(before);
                before = ring.stage;
            }
        }
        if (Few::kPending > 0) {
            wgmma_wait<0>();
            done(before);
        }
        if constexpr (Few::kMostParts * Few::kInTurn > 1) {
            finish_parts(shared, p, tile, few, share, turn, n + share.clusters < share.tiles.count);
        } else {
            finish_whole(p, tile, few);
        }
    }
}

#endif

// count: of the tiles of all matrices.
template <class Few, class P>
__global__ void WGMMA_KERNEL_IN_BLOCKS(kFewRowsThreads<Few>, Few::kAtOnce)
    matmul_few_rows(const __grid_constant__ Maps maps, P p, FewRowsTiles tiles, int parts) {
#if HAS_WGMMA
    constexpr int kConsuming = kFewRowsConsumers<Few>, kWarps = kConsuming / kWarp;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<FewRowsShared<Few>>(dynamic);
    const FewRowsShare share(tiles, int(ceil_div<int64_t>(p.depth, Few::kDepth)), parts);
    launch_dependents();
    if (threadIdx.x == 0) {
        init_stages(shared, kWarps / Few::kInTurn);
        for (Mbarrier& sent : shared.sent) sent.init();
        for (Mbarrier& read : shared.read) read.init(kWarps * parts);
    }
    __syncthreads();
    if (parts > 1) cluster_arrive();
    // The shuffle tells the compiler that all threads of a warp do the same.
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / kWarp, 0);
    const bool first = threadIdx.x % kWarp == 0;
    if (warp < kWarps) clear_other_rows(shared, tiles.rows);
    if (warp == kWarps && first) ask_few_rows_ahead<Few>(maps, p, share);
    __syncwarp();
    grid_dependency_wait();
    if (parts > 1) cluster_wait();  // all of its blocks have initialised their barriers
    if (warp < kWarps) {
        if constexpr (Few::kTakesRegisters) take_registers<232>();
        multiply_few_rows(shared, p, share);
    } else {
        if constexpr (Few::kTakesRegisters) give_registers<40>();
        const bool fetches = first && (!Few::kTakesRegisters || warp == kWarps);
        if (fetches) fetch_few_rows(shared, maps, p, share);
    }
#endif
}

// Has the device what the kernel needs?
template <class Few, class P>
bool can_few_rows() {
    return has_wgmma(matmul_few_rows<Few, P>, kFewRowsThreads<Few>) &&
           FewRowsShared<Few>::bytes() <= shared_bytes();
}

// The blocks of a cluster that share k, at most, where a tile has so many warpgroups' rows: of more
// rows, four would send more sums than they save.
constexpr int most_few_parts(int groups) { return groups == 1 ? 4 : 2; }

// The blocks of a cluster that share k. Where there is a round of tiles, as many as there are
// blocks for; where there are more tiles, two if their rounds of half the steps are done before.
inline int parts_of_few_rows(int64_t tiles, int64_t steps, int64_t blocks, int most_parts) {
    int parts = 1;
    const auto is_there_room = [&](int more) {  // clusters of four leave multiprocessors idle
        return more * tiles <= (more > 2 ? blocks - blocks / 12 : blocks) && 4 * more <= steps;
    };
    while (2 * parts <= most_parts && is_there_room(2 * parts)) parts *= 2;
    if (parts > 1 || most_parts == 1 || steps < 8 || blocks < 2) return parts;
    const int64_t whole = ceil_div(tiles, blocks) * steps;
    return ceil_div(tiles, blocks / 2) * ceil_div<int64_t>(steps, 2) < whole ? 2 : 1;
}

// The rows of x that a tile has: those that lie below one another share them evenly, for TMA takes
// its time for rows of a box that there are not.
template <class Few>
int rows_of_tile(int64_t rows) {
    return int(ceil_div<int64_t>(rows, ceil_div<int64_t>(rows, Few::kRows)));
}

// wide: rows of w. False: there are more tiles than are counted in 32 bits.
template <class Few, class P>
bool launch_few_rows(const P& p, const Maps& maps, int64_t batch, int64_t wide,
                     cudaStream_t stream) {
    const auto kernel = matmul_few_rows<Few, P>;
    constexpr int bytes = FewRowsShared<Few>::bytes();
    const int64_t high = ceil_div<int64_t>(p.rows, Few::kRows);
    const int64_t tiles = ceil_div<int64_t>(wide, Few::kUnits) * high, count = batch * tiles;
    if (count > 0x3fffffff) return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const int64_t steps = ceil_div<int64_t>(p.depth, Few::kDepth);
    const int64_t most = multiprocessors() * Few::kAtOnce;
    int parts = parts_of_few_rows(count, steps, most, Few::kMostParts);
    if (parts < Few::kInTurn) parts = Few::kInTurn;  // st.async takes a cluster to be there
    if (most < parts) return false;
    const int64_t clusters = smaller(count, most / parts);
    const FewRowsTiles of_y = {int(tiles), int(count), int(high), rows_of_tile<Few>(p.rows)};
    launch_secondary(kernel, parts, unsigned(clusters * parts), dim3(kFewRowsThreads<Few>), bytes,
                     stream, maps, p, of_y, parts);
    return true;
}

// What each Few has: the totals of a thread, in chunks of four.
template <int N>
struct FewTotals {
    static constexpr bool kTakesRegisters = N > 96;
    static constexpr bool kThreadsRead = false;
    float totals[1][N] = {};
#if HAS_WGMMA
    template <class P>
    __device__ void begin(const P&) {}
    __device__ auto& chunks() const { return reinterpret_cast<const float (&)[N / 4][4]>(totals); }
    __device__ Vec<float, 4> chunk(int c) const {
        Vec<float, 4> four;
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] = totals[0][4 * c + i];
        return four;
    }
#endif
};

// ---- up to 64 rows: w takes the place of the 64 rows of wgmma, and x, of which there are no 64,
// that of the columns. Where a tile has 128 rows of w, each of two warpgroups has half of them. The
// totals are y^T = w x^T. A chunk has two rows of x, and two of w, 8 apart: with swiglu these are
// one unit's, for of each 16 rows of a tile 8 are of either half of w.

template <int rows, int units = 64>
struct FewRowsTransposed : FewTotals<rows / 2> {
    static constexpr int kRows = rows, kUnits = units, kGroups = units / 64, kGates = 0;
    static constexpr int kMostParts = units == 64 ? 4 : 1, kInTurn = 1;

#if HAS_WGMMA
    // The first of 16 rows of w, or of 8 units of swiglu, that this thread's warp has.
    template <class P>
    __device__ static int first_unit(const P& p, int tile) {
        const int warp = threadIdx.x / kWarp % (kUnits / 16);
        return tile * (kUnits / halves(p)) + warp * (16 / halves(p));
    }
    template <class P>
    __device__ static void finish(const P& p, const FewRowsTile& tile, int c,
                                  const Vec<float, 4>& sums, const Vec<float, 4>&) {
        const int lane = threadIdx.x % kWarp, unit = first_unit(p, tile.column) + lane / 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = c * 8 + lane % 4 * 2 + i;
            if (row >= tile.end) continue;
            if (unit < p.units) put(p, tile.matrix, row, unit, sums[i], sums[i + 2]);
            if (halves(p) == 1 && unit + 8 < p.units)
                put(p, tile.matrix, row, unit + 8, sums[i + 2], 0.f);
        }
    }
    // A warp has 8 x 8 elements at a time, and turns them, so that a thread has two of a row.
    template <class P>
    __device__ static void finish_linear(const P& p, const FewRowsTile& tile, int c,
                                         const Vec<float, 4>& sums) {
        const int lane = threadIdx.x % kWarp, row = c * 8 + lane / 4;
        const int of_warp = first_unit(p, tile.column);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int summed = of_warp + i * 4 + lane / 4;
            const uint32_t turned =
                transposed_8x8(pair_of_z(p, summed, summed, sums[i], sums[i + 1]));
            put_pair(p, tile, row, of_warp + i * 4 + lane % 4 * 2, turned);
        }
    }
#endif
};
