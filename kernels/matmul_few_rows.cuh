// Products of few rows of x, as a model has them that writes one token after the other. All of w is
// read for them, and nothing takes as long as that.
//
// A block has 64 or 96 rows of w for a tile of y, and a part of k; the blocks of a cluster have the
// other parts, so that every multiprocessor reads w, and all of them as much. They stay, and take
// tile after tile; the next one's weights arrive while one is finished. At its end each block adds
// up its share of the rows of x over the whole cluster, always in the same order.
//
// One product of these often follows the other. So each lets the next kernel of its kind begin
// meanwhile (dependent_launch.cuh), which makes itself ready and waits for the end of this one.
//
// What depends on types and sizes is in `Few`, which each of a block's multiplying threads has:
//
//   kRows, kUnits, kGroups      the most rows of x; rows of w of a tile; warpgroups that multiply
//   kDepth, kStages, kAtOnce    of k in a stage; stages of a block; blocks of a multiprocessor
//   Stage                       tiles of w and x, which fetch_x and fetch_w ask TMA for; fetch_w
//                               calls `load` with the place of each box in a stage and in w
//   multiply(stage, p, step)    adds the products to `totals`; it has multiplied when it returns
//   row(i), unit(i)             of the tile, of number i of the totals
//
// put_four(p, ..) and halves(p), as in matmul_product.cuh, are there for the type of the product.
#pragma once

#include "dependent_launch.cuh"
#include "matmul_wgmma.cuh"

template <class Few>
struct FewRowsShared {
    typename Few::Stage stages[Few::kStages];
    // 4 more floats: a row's begin on 16 bytes, and those that lanes write are in different banks.
    float sums[Few::kRows][Few::kUnits + 4];
    Mbarrier full[Few::kStages], empty[Few::kStages];
    Mbarrier written, read;  // the sums of the cluster's blocks
    static constexpr int bytes() { return sizeof(FewRowsShared) + kTileAlign; }
};

// The threads of a block that multiply, before those of the warp that fetches.
template <class Few>
constexpr int kFewRowsConsumers = Few::kGroups * kWarpgroup;
template <class Few>
constexpr int kFewRowsThreads = kFewRowsConsumers<Few> + kWarp;

// Which tiles, and which steps of k of each, are the work of a block.
struct FewRowsShare {
    int64_t tiles, count, begin, blocks;  // of a matrix, of all; this cluster's first; clusters
    int parts, part, first, end;          // of k; this block's; its steps

    __device__ FewRowsShare(int64_t tiles, int64_t batch, int steps, int parts)
        : tiles(tiles),
          count(tiles * batch),
          begin(blockIdx.x / parts),
          blocks(gridDim.x / parts),
          parts(parts),
          part(blockIdx.x % parts) {
        first = int(int64_t(steps) * part / parts);
        end = int(int64_t(steps) * (part + 1) / parts);
    }
};

#if HAS_WGMMA

// What one thread does: it asks for all that the others multiply.
template <class Few, class P>
__device__ void fetch_few_rows(FewRowsShared<Few>& shared, const Maps& maps, const P& p,
                               const FewRowsShare& share) {
    grid_dependency_wait();
    Ring<Few::kStages> ring;
    for (int64_t n = share.begin; n < share.count; n += share.blocks) {
        const int64_t tile = n % share.tiles;
        const int matrix = int(n / share.tiles);
        for (int step = share.first; step < share.end; ++step, ring.next()) {
            auto& stage = shared.stages[ring.stage];
            Mbarrier& full = shared.full[ring.stage];
            shared.empty[ring.stage].wait((ring.round + 1) % 2);
            full.arrive_expect_tx(sizeof(stage));
            stage.fetch_x(maps, step, matrix, full);
            Few::Stage::fetch_w(p, tile, step, [&](int at, int column, int row) {
                tma_load_once(
                    reinterpret_cast<char*>(stage.w) + at, maps.w, column, row, matrix, full);
            });
        }
    }
}

// Four neighbours in a row of sums, added up over the blocks of the cluster.
__device__ inline Vec<float, 4> add_parts(const float* first, int parts) {
    Vec<float, 4> of_part[kClusterBlocks], all = {};
#pragma unroll
    for (int n = 0; n < kClusterBlocks; ++n)  // asks for all of them before it adds
        if (n < parts) of_part[n] = load_four_from(n, first);
#pragma unroll
    for (int n = 0; n < kClusterBlocks; ++n)
        for (int i = 0; i < 4; ++i) all[i] += n < parts ? of_part[n][i] : 0.f;
    return all;
}

// This block's share of the rows of a tile, whose sums are in the shared memory of the cluster.
template <class Few, class P>
__device__ void finish_few_rows(const FewRowsShared<Few>& shared, const P& p, int64_t matrix,
                                int64_t tile, const FewRowsShare& share) {
    constexpr int kThreads = kFewRowsConsumers<Few>;
    const int units = Few::kUnits / halves(p), fours = units / 4;
    const int first = share.part * kThreads + threadIdx.x;
#pragma unroll 1
    for (int i = first; i < Few::kRows * fours; i += share.parts * kThreads) {
        const int row = i / fours, column = i % fours * 4;
        const int64_t unit = tile * units + column;
        if (row >= p.rows || unit >= p.units) continue;
        const Vec<float, 4> sums = add_parts(&shared.sums[row][column], share.parts);
        Vec<float, 4> gates = {};
        if (halves(p) == 2) gates = add_parts(&shared.sums[row][column + units], share.parts);
        put_four(p, matrix, row, unit, sums, gates);
    }
}

// What the warpgroups do.
template <class Few, class P>
__device__ void multiply_few_rows(FewRowsShared<Few>& shared, const P& p,
                                  const FewRowsShare& share) {
    const int lane = threadIdx.x % kWarp;
    Ring<Few::kStages> ring;
    int turn = 0;
    for (int64_t n = share.begin; n < share.count; n += share.blocks, ++turn) {
        const int64_t tile = n % share.tiles;
        Few few(tile);
        for (int step = share.first; step < share.end; ++step, ring.next()) {
            shared.full[ring.stage].wait(ring.round % 2);
            few.multiply(shared.stages[ring.stage], p, step);
            __syncwarp();
            if (lane == 0) shared.empty[ring.stage].arrive();
        }
        if (turn > 0) shared.read.wait((turn - 1) % 2);  // by all, of the tile before
#pragma unroll
        for (int i = 0; i < int(sizeof(few.totals) / sizeof(float)); ++i)
            shared.sums[Few::row(i)][Few::unit(i)] = few.totals[0][i];
        __syncwarp();
        if (lane < share.parts) shared.written.arrive_release_in(lane);
        shared.written.wait_for_cluster(turn % 2);
        finish_few_rows(shared, p, n / share.tiles, tile, share);
        __syncwarp();
        if (lane < share.parts) shared.read.arrive_in(lane);
    }
    if (turn > 0) shared.read.wait((turn - 1) % 2);  // until then this block's memory has to stay
}

#endif

template <class Few, class P>
__global__ void WGMMA_KERNEL_IN_BLOCKS(kFewRowsThreads<Few>, Few::kAtOnce)
    matmul_few_rows(const __grid_constant__ Maps maps, P p, int64_t batch, int64_t tiles,
                    int parts) {
#if HAS_WGMMA
    constexpr int kConsuming = kFewRowsConsumers<Few>, kWarps = kConsuming / kWarp;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<FewRowsShared<Few>>(dynamic);
    const FewRowsShare share(tiles, batch, int(ceil_div<int64_t>(p.depth, Few::kDepth)), parts);
    launch_dependents();
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) full.init();
        for (Mbarrier& empty : shared.empty) empty.init(kWarps);
        shared.written.init(parts * kWarps);
        shared.read.init(parts * kWarps);
    }
    __syncthreads();
    if (parts > 1) cluster_arrive();
    if (threadIdx.x < kConsuming) {
        grid_dependency_wait();
        if (parts > 1) cluster_wait();  // all of its blocks have initialised their barriers
        multiply_few_rows(shared, p, share);
    } else {
        if (threadIdx.x == kConsuming) fetch_few_rows(shared, maps, p, share);
        __syncwarp();
        if (parts > 1) cluster_wait();
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
    const int64_t most = smaller<int64_t>(steps / 4, kClusterBlocks);
    if (2 * tiles <= blocks) return int(most < 1 ? 1 : smaller(blocks / tiles, most));
    const int64_t whole = ceil_div(tiles, blocks) * steps;
    return most >= 2 && ceil_div(tiles, blocks / 2) * ceil_div<int64_t>(steps, 2) < whole ? 2 : 1;
}

// wide: rows of w.
template <class Few, class P>
void launch_few_rows(const P& p, const Maps& maps, int64_t batch, int64_t wide,
                     cudaStream_t stream) {
    const auto kernel = matmul_few_rows<Few, P>;
    constexpr int bytes = FewRowsShared<Few>::bytes();
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const int64_t tiles = ceil_div<int64_t>(wide, Few::kUnits);
    const int64_t steps = ceil_div<int64_t>(p.depth, Few::kDepth);
    const int64_t most = multiprocessors() * Few::kAtOnce;
    const int parts = parts_of_few_rows(batch * tiles, steps, most);
    const int64_t clusters = smaller(batch * tiles, most / parts);
    launch_secondary(kernel, parts, unsigned(clusters * parts), dim3(kFewRowsThreads<Few>), bytes,
                     stream, maps, p, batch, tiles, parts);
}

// ---- up to 64 rows: w takes the place of the 64 rows of wgmma, and x, of which there are no 64,
// that of the columns. The totals are y^T = w x^T.

struct FewRowsTransposed {
    static constexpr int kUnits = 64, kGroups = 1;
#if HAS_WGMMA
    __device__ static int row(int i) { return column_of_sum(i); }
    __device__ static int unit(int i) { return row_of_sum(i); }
#endif
};

template <class T, int rows, int units>
struct FewRowsStage {
    T w[units * kTileDepth], x[rows * kTileDepth];

#if HAS_WGMMA
    // Tiles of w by column are boxes of 64 units; with swiglu there are two boxes of rows.
    template <class Load>
    __device__ static void fetch_w(const Product<T>& p, int64_t tile, int step, Load load) {
        const auto of_w = TileRows<units>::of_w(p, tile);
        const int count = halves(p), k = step * kTileDepth;
        for (int n = 0; n < count; ++n) {
            const int row = int(of_w.first[n]), at = n * (units / count) * kTileRow;
            p.w.col == 1 ? load(at, k, row) : load(at, row, k);
        }
    }
    __device__ void fetch_x(const Maps& maps, int step, int matrix, Mbarrier& full) {
        tma_load(x, maps.x, step * kTileDepth, 0, matrix, full);
    }
#endif
};

template <class T, int rows, int stages>
struct FewRows : FewRowsTransposed {
    static constexpr int kRows = rows, kDepth = kTileDepth, kStages = stages, kAtOnce = 1;
    using Stage = FewRowsStage<T, rows, kUnits>;
    float totals[1][kRows / 2] = {};

    __device__ explicit FewRows(int64_t) {}

#if HAS_WGMMA
    __device__ void multiply(const Stage& stage, const Product<T>& p, int) {
        if (p.w.col == 1) {
            ::multiply<false, false>(totals, stage.w, stage.x, true);
        } else {
            ::multiply<true, false>(totals, stage.w, stage.x, true);
        }
        wgmma_wait<0>();
    }
#endif
};

// ---- up to 128 rows: each of two warpgroups has 64 of them. The totals are y = x w^T.

template <class T, int units, int stages>
struct FewRowsOfTwo {
    static constexpr int kRows = 128, kUnits = units, kGroups = 2;
    static constexpr int kDepth = kTileDepth, kStages = stages, kAtOnce = 1;
    using Stage = FewRowsStage<T, kRows, units>;
    float totals[1][units / 2] = {};

    __device__ explicit FewRowsOfTwo(int64_t) {}

#if HAS_WGMMA
    __device__ static int row(int i) { return threadIdx.x / kWarpgroup * 64 + row_of_sum(i); }
    __device__ static int unit(int i) { return column_of_sum(i); }
    __device__ void multiply(const Stage& stage, const Product<T>& p, int) {
        const T* const x = stage.x + threadIdx.x / kWarpgroup * 64 * kTileDepth;
        if (p.w.col == 1) {
            ::multiply<false, false>(totals, x, stage.w, true);
        } else {
            ::multiply<false, true>(totals, x, stage.w, true);
        }
        wgmma_wait<0>();
    }
#endif
};

// Of w, a step reads 128 bytes of a row; to bring the next step's with them took 5% longer.
constexpr auto kFewRowsPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;

template <class Few, class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    Maps maps;
    if (p.rows > Few::kRows || p.x.col != 1) return false;
    if (p.w.col != 1 && (p.act == kSwiglu || Few::kUnits != 64)) return false;
    if (!can_few_rows<Few, Product<T>>() || !fits_tma(p)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, Few::kRows) ||
        !make_map(maps.w, p, p.w, p.units * halves(p), Few::kUnits / halves(p), kFewRowsPromotion))
        return false;
    launch_few_rows<Few>(p, maps, p.batch, p.units * halves(p), stream);
    return true;
}

// The units of a tile of FewRowsOfTwo, so that each tile has a pair of multiprocessors, and most of
// these a tile; 0: none do that, or w by column is not for them. With larger clusters, which fewer
// units would have, products took twice cuBLAS's time.
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
template <class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    if (launch_few_rows<FewRows<T, 16, 21>>(p, stream)) return true;
    if (TileGrid(p, kTileRows, 128).tiles() >= multiprocessors()) return false;
    if (launch_few_rows<FewRows<T, 64, 13>>(p, stream)) return true;
    const int units = units_of_pairs(p);
    if (units == 64) return launch_few_rows<FewRowsOfTwo<T, 64, 7>>(p, stream);
    return units == 96 && launch_few_rows<FewRowsOfTwo<T, 96, 6>>(p, stream);
}
