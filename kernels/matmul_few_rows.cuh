// Products of few rows of x, as a model has them that writes one token after the other. All of w is
// read for them, and nothing takes as long as that.
//
// A block has 64 or 96 rows of w for a tile of y, and a part of k; the blocks of a cluster have the
// other parts, so that every multiprocessor reads w, and all of them as much. They stay, and take
// tile after tile; the next one's weights arrive while one is finished. At its end each block sends
// the others those of its sums that they finish, and adds up its own, always in the same order.
//
// One product of these often follows the other. So each lets the next kernel of its kind begin
// meanwhile (dependent_launch.cuh). That one makes itself ready, has its first weights brought to
// the L2 cache, and waits for the end of this one.
//
// What depends on types and sizes is in `Few`, which each of a block's multiplying threads has:
//
//   kRows, kUnits, kGroups      the most rows of x; rows of w of a tile; warpgroups that multiply
//   kDepth, kStages, kAtOnce    of k in a stage; stages of a block; blocks of a multiprocessor
//   kGates                      where the gates of swiglu have chunks of their own: how far behind
//   Stage                       tiles of w and x, which fetch_x and fetch_w ask TMA for; fetch_w
//                               calls `load` with the place of each box in a stage and in w
//   multiply(stage, p, step)    adds the products to `totals`; it has multiplied when it returns
//   finish(p, .., c, sums)      makes y of chunk c, four of the totals
//
// is_linear(p), z_of(p, ..), put(p, ..) and halves(p), as in matmul_product.cuh, are there for the
// type of the product.
#pragma once

#include "dependent_launch.cuh"
#include "matmul_wgmma.cuh"

constexpr int kMostFewParts = 4;  // of k, for a cluster

template <class Few>
constexpr int kFewChunks = sizeof(Few::totals) / sizeof(float) / 4;  // of a thread's sums

// The threads of a block that multiply, before those of the warp that fetches.
template <class Few>
constexpr int kFewRowsConsumers = Few::kGroups * kWarpgroup;
template <class Few>
constexpr int kFewRowsThreads = kFewRowsConsumers<Few> + kWarp;

template <class Few>
struct FewRowsShared {
    typename Few::Stage stages[Few::kStages];
    // What other blocks have of this one's sums, for two tiles in turn: a pair has half of the
    // chunks for each, and where a cluster is larger it has one tile.
    static constexpr int kChunks = kFewChunks<Few>;
    static constexpr int kSlots = kChunks > kMostFewParts ? kChunks : kMostFewParts;
    Vec<float, 4> sums[kSlots][kFewRowsConsumers<Few>];
    Mbarrier full[Few::kStages], empty[Few::kStages];
    Mbarrier sent[2];  // to this block, of a tile
    static constexpr int bytes() { return sizeof(FewRowsShared) + kTileAlign; }
};

// Which tiles, and which steps of k of each, are the work of a block.
struct FewRowsShare {
    int tiles, count, begin, clusters;  // of a matrix, of all; this cluster's first; clusters
    int parts, part, first, end;        // of k; this block's; its steps

    __device__ FewRowsShare(int tiles, int count, int steps, int parts)
        : tiles(tiles),
          count(count),
          begin(blockIdx.x / parts),
          clusters(gridDim.x / parts),
          parts(parts),
          part(blockIdx.x % parts) {
        first = int(int64_t(steps) * part / parts);
        end = int(int64_t(steps) * (part + 1) / parts);
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
__device__ void put_pair(const P& p, int64_t matrix, int64_t row, int64_t unit, uint32_t pair) {
    if (row >= p.rows || unit >= p.units) return;
    *reinterpret_cast<uint32_t*>(p.y + (matrix * p.rows + row) * p.units + unit) = pair;
}

// What one thread does: it has the first weights brought to the L2 cache, which changes nothing for
// what the primary kernel may still write there: a quarter of a block's steps, but no more than 16,
// for more would take longer than to wait;
template <class Few, class P>
__device__ void ask_few_rows_ahead(const Maps& maps, const P& p, const FewRowsShare& share) {
    const int64_t steps = share.end - share.first;
    const int64_t all = steps * ceil_div(share.count - share.begin, share.clusters);
    const int ahead = int(smaller<int64_t>(smaller<int64_t>(all / 4, 16), steps));
    const int matrix = share.begin / share.tiles;
    for (int n = 0; n < ahead; ++n)
        Few::Stage::fetch_w(
            p, share.begin % share.tiles, share.first + n,
            [&](int, int column, int row) { tma_load_to_l2(maps.w, column, row, matrix); });
}

// and then it asks for all that the others multiply.
template <class Few, class P>
__device__ void fetch_few_rows(FewRowsShared<Few>& shared, const Maps& maps, const P& p,
                               const FewRowsShare& share) {
    using Stage = typename Few::Stage;
    constexpr int kBytesOfW = sizeof(Stage) - Stage::kBoxesOfX * Few::kRows * kTileRow;
    const int bytes = kBytesOfW + Stage::kBoxesOfX * int(p.rows) * kTileRow;
    Ring<Few::kStages> ring;
    for (int n = share.begin; n < share.count; n += share.clusters) {
        const int matrix = n / share.tiles, tile = n % share.tiles;
        for (int step = share.first; step < share.end; ++step, ring.next()) {
            Stage& stage = shared.stages[ring.stage];
            Mbarrier& full = shared.full[ring.stage];
            shared.empty[ring.stage].wait((ring.round + 1) % 2);
            full.arrive_expect_tx(bytes);
            stage.fetch_x(maps, step, matrix, full);
            Stage::fetch_w(p, tile, step, [&](int at, int column, int row) {
                tma_load_once(
                    reinterpret_cast<char*>(stage.w) + at, maps.w, column, row, matrix, full);
            });
        }
    }
}

// Makes the rows of x zeros that a stage has and x does not; each warpgroup those that it reads.
// TMA could read them as zeros, too, but takes longer for that than for rows that there are.
template <class Few>
__device__ void clear_other_rows(FewRowsShared<Few>& shared, int rows) {
    constexpr int kVectors = kTileRow / kVecBytes;  // of a row
    constexpr int kBox = Few::kRows * kVectors, kOfGroup = kBox / Few::kGroups;
    const int group = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
    const int first = rows * kVectors < group * kOfGroup ? group * kOfGroup : rows * kVectors;
    for (auto& stage : shared.stages) {
        auto* const vectors = reinterpret_cast<Vec<float, 4>*>(stage.x);
        for (int box = 0; box < Few::Stage::kBoxesOfX * kBox; box += kBox)
            for (int i = first + thread; i < (group + 1) * kOfGroup; i += kWarpgroup)
                vectors[box + i] = {};
    }
    tma_writes_done();
    warpgroup_barrier(group);
}

// Calls f(c, owner, n) for each chunk c of a thread's sums: the part that finishes it, in turn, and
// how many chunks that one has before. (To divide by the parts takes longer than to count.)
template <int chunks, class F>
__device__ void for_each_chunk(int parts, F f) {
    int owner = 0, n = 0;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
        f(c, owner, n);
        if (++owner == parts) owner = 0, ++n;
    }
}

// The first of the slots of chunk n of a block: one for each other part. Only pairs have a second
// tile, and half of the chunks each. turn: counts the tiles.
template <class Few>
__device__ int first_slot(const FewRowsShare& share, int turn, int n) {
    return (turn % 2 * (kFewChunks<Few> / 2) + n) * (share.parts - 1);
}

// Sends the other blocks of a cluster what they finish, and waits for what they send.
template <class Few>
__device__ void exchange_sums(FewRowsShared<Few>& shared, const Few& few, const FewRowsShare& share,
                              int turn) {
    Mbarrier& sent = shared.sent[turn % 2];
    int own = 0;
    for_each_chunk<kFewChunks<Few>>(share.parts, [&](int c, int owner, int n) {
        own += owner == share.part;
        if (owner == share.part) return;
        const int slot = first_slot<Few>(share, turn, n) + share.part - (share.part > owner);
        sent.st_async(&shared.sums[slot][threadIdx.x], few.chunk(c), owner);
    });
    if (threadIdx.x == 0) sent.arrive_expect_tx(own * (share.parts - 1) * sizeof(shared.sums[0]));
    sent.wait_for_cluster(turn / 2 % 2);
}

// Chunk n of this block with what the others have sent, in the order of the parts.
template <class Few>
__device__ Vec<float, 4> add_parts(const FewRowsShared<Few>& shared, const Vec<float, 4>& own,
                                   const FewRowsShare& share, int turn, int n) {
    if (share.parts == 1) return own;
    const int first = first_slot<Few>(share, turn, n);
    Vec<float, 4> all = {};
#pragma unroll
    for (int part = 0; part < kMostFewParts; ++part) {
        if (part >= share.parts) continue;
        const int slot = first + part - (part > share.part);
        const Vec<float, 4> sums = part == share.part ? own : shared.sums[slot][threadIdx.x];
#pragma unroll
        for (int i = 0; i < 4; ++i) all[i] += sums[i];
    }
    return all;
}

// Makes y of the chunks that this block finishes.
template <class Few, class P>
__device__ void finish_few_rows(FewRowsShared<Few>& shared, const P& p, int matrix, int tile,
                                const Few& few, const FewRowsShare& share, int turn) {
    constexpr int kChunks = kFewChunks<Few>;
    if (share.parts > 1) exchange_sums(shared, few, share, turn);
    if (is_linear(p) && p.units % 2 == 0 && is_aligned(p.y)) {
        for_each_chunk<kChunks>(share.parts, [&](int c, int owner, int n) {
            if (owner == share.part)
                few.finish_linear(
                    p, matrix, tile, c, add_parts(shared, few.chunk(c), share, turn, n));
        });
        return;
    }
    const auto total = [&](int c, int n) {
        Vec<float, 4> own;
#pragma unroll
        for (int i = 0; i < 4; ++i) own[i] = taken(few.chunks(), c, i);
        return add_parts(shared, own, share, turn, n);
    };
    const bool gated = Few::kGates > 0 && halves(p) == 2;
#pragma unroll 1
    for (int c = share.part, n = 0; c < (gated ? Few::kGates : kChunks); c += share.parts, ++n) {
        Vec<float, 4> gates = {};
        if (gated) gates = total(c + Few::kGates, n + Few::kGates / share.parts);
        few.finish(p, matrix, tile, c, total(c, n), gates);
    }
}

// What the warpgroups do.
template <class Few, class P>
__device__ void multiply_few_rows(FewRowsShared<Few>& shared, const P& p,
                                  const FewRowsShare& share) {
    const int lane = threadIdx.x % kWarp;
    Ring<Few::kStages> ring;
    int turn = 0;
    for (int n = share.begin; n < share.count; n += share.clusters, ++turn) {
        const int matrix = n / share.tiles, tile = n % share.tiles;
        Few few(tile);
        for (int step = share.first; step < share.end; ++step, ring.next()) {
            shared.full[ring.stage].wait(ring.round % 2);
            few.multiply(shared.stages[ring.stage], p, step);
            __syncwarp();
            if (lane == 0) shared.empty[ring.stage].arrive();
        }
        finish_few_rows(shared, p, matrix, tile, few, share, turn);
    }
}

#endif

// count: of the tiles of all matrices.
template <class Few, class P>
__global__ void WGMMA_KERNEL_IN_BLOCKS(kFewRowsThreads<Few>, Few::kAtOnce)
    matmul_few_rows(const __grid_constant__ Maps maps, P p, int tiles, int count, int parts) {
#if HAS_WGMMA
    constexpr int kConsuming = kFewRowsConsumers<Few>, kWarps = kConsuming / kWarp;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<FewRowsShared<Few>>(dynamic);
    const FewRowsShare share(tiles, count, int(ceil_div<int64_t>(p.depth, Few::kDepth)), parts);
    launch_dependents();
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) full.init();
        for (Mbarrier& empty : shared.empty) empty.init(kWarps);
        for (Mbarrier& sent : shared.sent) sent.init();
    }
    __syncthreads();
    if (parts > 1) cluster_arrive();
    if (threadIdx.x < kConsuming) clear_other_rows(shared, int(p.rows));
    if (threadIdx.x == kConsuming) ask_few_rows_ahead<Few>(maps, p, share);
    __syncwarp();
    grid_dependency_wait();
    if (parts > 1) cluster_wait();  // all of its blocks have initialised their barriers
    if (threadIdx.x < kConsuming) {
        multiply_few_rows(shared, p, share);
    } else if (threadIdx.x == kConsuming) {
        fetch_few_rows(shared, maps, p, share);
    }
#endif
}

// Has the device what the kernel needs?
template <class Few, class P>
bool can_few_rows() {
    return has_wgmma(matmul_few_rows<Few, P>, kFewRowsThreads<Few>) &&
           FewRowsShared<Few>::bytes() <= shared_bytes();
}

// The blocks of a cluster that share k. Where there is a round of tiles, as many as there are
// blocks for; where there are more tiles, two if their rounds of half the steps are done before.
inline int parts_of_few_rows(int64_t tiles, int64_t steps, int64_t blocks) {
    const int64_t most = smaller<int64_t>(steps / 4, kMostFewParts);
    if (2 * tiles <= blocks) return int(most < 1 ? 1 : smaller(blocks / tiles, most));
    const int64_t whole = ceil_div(tiles, blocks) * steps;
    return most >= 2 && ceil_div(tiles, blocks / 2) * ceil_div<int64_t>(steps, 2) < whole ? 2 : 1;
}

// wide: rows of w. False: there are more tiles than are counted in 32 bits.
template <class Few, class P>
bool launch_few_rows(const P& p, const Maps& maps, int64_t batch, int64_t wide,
                     cudaStream_t stream) {
    const auto kernel = matmul_few_rows<Few, P>;
    constexpr int bytes = FewRowsShared<Few>::bytes();
    const int64_t tiles = ceil_div<int64_t>(wide, Few::kUnits), count = batch * tiles;
    if (count > 0x3fffffff) return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const int64_t steps = ceil_div<int64_t>(p.depth, Few::kDepth);
    const int64_t most = multiprocessors() * Few::kAtOnce;
    const int parts = parts_of_few_rows(count, steps, most);
    const int64_t clusters = smaller(count, most / parts);
    launch_secondary(kernel, parts, unsigned(clusters * parts), dim3(kFewRowsThreads<Few>), bytes,
                     stream, maps, p, tiles, count, parts);
    return true;
}

// What each Few has: the totals of a thread, in chunks of four.
template <int N>
struct FewTotals {
    float totals[1][N] = {};
#if HAS_WGMMA
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
// that of the columns. The totals are y^T = w x^T. A chunk has two rows of x, and two of w, 8
// apart: with swiglu these are one unit's, for of each 16 rows of a tile 8 are of either half of w.

template <int rows>
struct FewRowsTransposed : FewTotals<rows / 2> {
    static constexpr int kRows = rows, kUnits = 64, kGroups = 1, kGates = 0;

#if HAS_WGMMA
    // The first of 16 rows of w, or of 8 units of swiglu, that this thread's warp has.
    template <class P>
    __device__ static int first_unit(const P& p, int tile) {
        return tile * (kUnits / halves(p)) + threadIdx.x / kWarp * (16 / halves(p));
    }
    template <class P>
    __device__ static void finish(const P& p, int matrix, int tile, int c,
                                  const Vec<float, 4>& sums, const Vec<float, 4>&) {
        const int lane = threadIdx.x % kWarp, unit = first_unit(p, tile) + lane / 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = c * 8 + lane % 4 * 2 + i;
            if (row >= p.rows) continue;
            if (unit < p.units) put(p, matrix, row, unit, sums[i], sums[i + 2]);
            if (halves(p) == 1 && unit + 8 < p.units)
                put(p, matrix, row, unit + 8, sums[i + 2], 0.f);
        }
    }
    // A warp has 8 x 8 elements at a time, and turns them, so that a thread has two of a row.
    template <class P>
    __device__ static void finish_linear(const P& p, int matrix, int tile, int c,
                                         const Vec<float, 4>& sums) {
        const int lane = threadIdx.x % kWarp, row = c * 8 + lane / 4;
        const int of_warp = first_unit(p, tile);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int summed = of_warp + i * 4 + lane / 4;
            const uint32_t turned =
                transposed_8x8(pair_of_z(p, summed, summed, sums[i], sums[i + 1]));
            put_pair(p, matrix, row, of_warp + i * 4 + lane % 4 * 2, turned);
        }
    }
#endif
};

template <class T, int rows, int units, bool by_column>
struct FewRowsStage {
    static constexpr int kBoxesOfX = 1;
    T w[units * kTileDepth], x[rows * kTileDepth];

#if HAS_WGMMA
    // Tiles of w by column are boxes of 64 units.
    template <class Load>
    __device__ static void fetch_w(const Product<T>& p, int tile, int step, Load load) {
        const int first = tile * (units / halves(p)), k = step * kTileDepth;
        if (!by_column && halves(p) == 2) {
            for (int n = 0; n < units / 8; ++n)
                load(n * 8 * kTileRow, k, first + n / 2 * 8 + n % 2 * int(p.units));
        } else {
            by_column ? load(0, first, k) : load(0, k, first);
        }
    }
    __device__ void fetch_x(const Maps& maps, int step, int matrix, Mbarrier& full) {
        tma_load(x, maps.x, step * kTileDepth, 0, matrix, full);
    }
#endif
};

template <class T, int rows, int stages, bool by_column>
struct FewRows : FewRowsTransposed<rows> {
    static constexpr int kDepth = kTileDepth, kStages = stages, kAtOnce = 1;
    static constexpr bool kByColumn = by_column;
    using Stage = FewRowsStage<T, rows, FewRowsTransposed<rows>::kUnits, by_column>;

    __device__ explicit FewRows(int) {}
    static int units_of_box(const Product<T>& p) {
        return halves(p) == 2 ? 8 : FewRowsTransposed<rows>::kUnits;
    }

#if HAS_WGMMA
    __device__ void multiply(const Stage& stage, const Product<T>&, int) {
        ::multiply<by_column, false>(this->totals, stage.w, stage.x, true);
        wgmma_wait<0>();
    }
#endif
};

// ---- up to 128 rows: each of two warpgroups has 64 of them. The totals are y = x w^T. A chunk has
// two rows of x, 8 apart, and two units; with swiglu the other half of a tile is that of w.

template <class T, int units, int stages, bool by_column>
struct FewRowsOfTwo : FewTotals<units / 2> {
    static constexpr int kRows = 128, kUnits = units, kGroups = 2, kGates = units / 16;
    static constexpr int kDepth = kTileDepth, kStages = stages, kAtOnce = 1;
    static constexpr bool kByColumn = by_column;
    struct Stage : FewRowsStage<T, kRows, units, by_column> {
#if HAS_WGMMA
        template <class Load>
        __device__ static void fetch_w(const Product<T>& p, int tile, int step, Load load) {
            if (halves(p) == 1)
                return FewRowsStage<T, kRows, units, by_column>::fetch_w(p, tile, step, load);
            for (int half = 0; half < 2; ++half)
                load(half * (units / 2) * kTileRow, step * kTileDepth,
                     tile * (units / 2) + half * int(p.units));
        }
#endif
    };

    __device__ explicit FewRowsOfTwo(int) {}
    static int units_of_box(const Product<T>& p) { return units / halves(p); }

#if HAS_WGMMA
    __device__ static int row(int i) { return threadIdx.x / kWarpgroup * 64 + row_of_sum(i); }
    __device__ void multiply(const Stage& stage, const Product<T>&, int) {
        const T* const x = stage.x + threadIdx.x / kWarpgroup * 64 * kTileDepth;
        ::multiply<false, by_column>(this->totals, x, stage.w, true);
        wgmma_wait<0>();
    }
    __device__ static void finish(const Product<T>& p, int matrix, int tile, int c,
                                  const Vec<float, 4>& sums, const Vec<float, 4>& gates) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int unit = tile * (units / halves(p)) + c * 8 + column_of_sum(i);
            if (row(i) < p.rows && unit < p.units) put(p, matrix, row(i), unit, sums[i], gates[i]);
        }
    }
    __device__ static void finish_linear(const Product<T>& p, int matrix, int tile, int c,
                                         const Vec<float, 4>& sums) {
        const int unit = tile * units + c * 8 + column_of_sum(0);
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            put_pair(p, matrix, row(i), unit, pair_of_z(p, unit, unit + 1, sums[i], sums[i + 1]));
    }
#endif
};

// Of w, a step reads 128 bytes of a row; to bring the next step's with them took 5% longer.
constexpr auto kFewRowsPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;

template <class Few, class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    Maps maps;
    if (p.rows > Few::kRows || p.x.col != 1 || (Few::kByColumn && p.act == kSwiglu)) return false;
    if (!can_few_rows<Few, Product<T>>() || !fits_tma(p)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, int(p.rows)) ||
        !make_map(maps.w, p, p.w, p.units * halves(p), Few::units_of_box(p), kFewRowsPromotion))
        return false;
    return launch_few_rows<Few>(p, maps, p.batch, p.units * halves(p), stream);
}

// The units of a tile of FewRowsOfTwo, so that each tile has a pair of multiprocessors, and most
// of these a tile; 0: none do that, or w by column is not for them. With larger clusters, which
// fewer units would have, products took twice cuBLAS's time.
template <class T>
int units_of_pairs(const Product<T>& p) {
    const auto tiles = [&](int units) {
        return p.batch * ceil_div<int64_t>(p.units * halves(p), units);
    };
    const int count = multiprocessors();
    if (3 * tiles(64) <= count) return 0;
    if (2 * tiles(64) <= count) return 64;
    return 2 * tiles(96) <= count && p.w.col == 1 ? 96 : 0;
}

// False: there are more rows, or this GPU, or how x and w lie in memory, is not for it; or so many
// units that all multiprocessors have a tile of 128 columns of those that `specialized` fills,
// which then read w as fast and more rows of x faster.
template <bool by_column, class T>
bool launch_few_rows_of(const Product<T>& p, cudaStream_t stream) {
    if (launch_few_rows<FewRows<T, 16, 21, by_column>>(p, stream)) return true;
    if (TileGrid(p, kTileRows, 128).tiles() >= multiprocessors()) return false;
    if (launch_few_rows<FewRows<T, 64, 13, by_column>>(p, stream)) return true;
    const int units = units_of_pairs(p);
    if (units == 64) return launch_few_rows<FewRowsOfTwo<T, 64, 8, by_column>>(p, stream);
    return units == 96 && launch_few_rows<FewRowsOfTwo<T, 96, 6, false>>(p, stream);
}
template <class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    return p.w.col == 1 ? launch_few_rows_of<false>(p, stream)
                        : launch_few_rows_of<true>(p, stream);
}
