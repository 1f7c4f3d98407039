// Products of few rows of x, as a model has them that writes one token after the other. All of w is
// read for them, and nothing takes as long as that.
//
// w takes the place of the 64 rows of wgmma, and x, of which there are no 64, that of the columns:
// y^T = w x^T. A block has 64 rows of w for a tile of y^T, and a part of k; the blocks of a cluster
// have the other parts, so that there are enough of them for every multiprocessor to read w. At the
// end each block adds up its share of the rows of x over the whole cluster, always in the same
// order.
//
// What depends on the types is in `Few`, which each of a block's 128 multiplying threads has:
//
//   kRows, kDepth               the most rows of x; of k in a stage
//   kStages, kAtOnce            of a block; blocks of a multiprocessor
//   Stage                       tiles of w and x
//   fetch(stage, maps, p, ..)   asks TMA for them; by another thread
//   multiply(stage, p, step)    adds the products to `totals`, [64, kRows] as wgmma leaves them;
//   has
//                               multiplied when it returns
//
// put(p, ..) and halves(p), as in matmul_product.cuh, are there for the type of the product.
#pragma once

#include "matmul_wgmma.cuh"

constexpr int kFewRowsThreads = kWarpgroup + kWarp;
constexpr int kFewRowsUnits = 64;

template <class Few>
struct FewRowsShared {
    typename Few::Stage stages[Few::kStages];
    // 4 more floats: a row's begin on 16 bytes, and those that lanes write are in different banks.
    float sums[Few::kRows][kFewRowsUnits + 4];
    Mbarrier full[Few::kStages], empty[Few::kStages];
    static constexpr int bytes() { return sizeof(FewRowsShared) + kTileAlign; }
};

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

template <class Few, class P>
__global__ void WGMMA_KERNEL_IN_BLOCKS(kFewRowsThreads, Few::kAtOnce)
    matmul_few_rows(const __grid_constant__ Maps maps, P p, int64_t batch, int64_t tiles,
                    int parts) {
#if HAS_WGMMA
    constexpr int kRows = Few::kRows;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<FewRowsShared<Few>>(dynamic);
    const int part = blockIdx.x % parts;
    const int64_t blocks = gridDim.x / parts, begin = blockIdx.x / parts;
    const int steps = int(ceil_div<int64_t>(p.depth, Few::kDepth));
    const int each = ceil_div(steps, parts);
    const int first = smaller(part * each, steps), end = smaller(first + each, steps);
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) full.init();
        for (Mbarrier& empty : shared.empty) empty.init(kWarpgroup / kWarp);
    }
    __syncthreads();

    Ring<Few::kStages> ring;
    const int64_t count = tiles * batch;
    if (threadIdx.x >= kWarpgroup) {
        for (int64_t n = begin; n < count && threadIdx.x == kWarpgroup; n += blocks) {
            for (int step = first; step < end; ++step, ring.next()) {
                auto& stage = shared.stages[ring.stage];
                Mbarrier& full = shared.full[ring.stage];
                shared.empty[ring.stage].wait((ring.round + 1) % 2);
                full.arrive_expect_tx(sizeof(stage));
                Few::fetch(stage, maps, p, n % tiles, step, int(n / tiles), full);
            }
        }
        __syncwarp();
        for (int i = 0; i < 2 && parts > 1; ++i) {  // as the others do
            cluster_arrive();
            cluster_wait();
        }
        return;
    }
    for (int64_t n = begin; n < count; n += blocks) {
        const int64_t tile = n % tiles, matrix = n / tiles;
        Few few(tile);
        for (int step = first; step < end; ++step, ring.next()) {
            shared.full[ring.stage].wait(ring.round % 2);
            few.multiply(shared.stages[ring.stage], p, step);
            __syncwarp();
            if (threadIdx.x % kWarp == 0) shared.empty[ring.stage].arrive();
        }
        if (n > begin) warpgroup_barrier(0);  // nobody reads the tile's before
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i)
            shared.sums[column_of_sum(i)][row_of_sum(i)] = few.totals[0][i];
        if (parts > 1) {
            cluster_arrive_release();
            cluster_wait();
        } else {
            warpgroup_barrier(0);
        }
        const int units = kFewRowsUnits / halves(p), fours = units / 4;
        for (int i = part * kWarpgroup + threadIdx.x; i < kRows * fours; i += parts * kWarpgroup) {
            const int row = i / fours, column = i % fours * 4;
            const int64_t unit = tile * units + column;
            if (row >= p.rows || unit >= p.units) continue;
            const Vec<float, 4> sums = add_parts(&shared.sums[row][column], parts);
            Vec<float, 4> gates = {};
            if (halves(p) == 2) gates = add_parts(&shared.sums[row][column + units], parts);
            for (int k = 0; k < 4; ++k)
                if (unit + k < p.units) put(p, matrix, row, unit + k, sums[k], gates[k]);
        }
    }
    if (parts > 1) {  // others read this block's sums
        cluster_arrive();
        cluster_wait();
    }
#endif
}

// Has the device what the kernel needs?
template <class Few, class P>
bool can_few_rows() {
    return has_wgmma(matmul_few_rows<Few, P>, kFewRowsThreads) &&
           FewRowsShared<Few>::bytes() <= shared_bytes();
}

// wide: rows of w. A cluster shares k until there are blocks for each multiprocessor; where there
// are more tiles than blocks, those stay and take tile after tile, and the next one's weights
// arrive while one is finished.
template <class Few, class P>
void launch_few_rows(const P& p, const Maps& maps, int64_t batch, int64_t wide,
                     cudaStream_t stream) {
    const auto kernel = matmul_few_rows<Few, P>;
    constexpr int bytes = FewRowsShared<Few>::bytes();
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const int64_t tiles = ceil_div<int64_t>(wide, kFewRowsUnits);
    const int64_t steps = ceil_div<int64_t>(p.depth, Few::kDepth);
    const int64_t most = multiprocessors() * Few::kAtOnce;
    int64_t parts = smaller<int64_t>(most / (batch * tiles), steps / 4);
    parts = parts < 1 ? 1 : smaller<int64_t>(parts, kClusterBlocks);
    const int64_t blocks = smaller(batch * tiles * parts, most);
    launch_clusters(kernel, int(parts), unsigned(blocks), kFewRowsThreads, bytes, stream, maps, p,
                    batch, tiles, int(parts));
}

// ---- of 16-bit floats

template <class T, int rows, int stages>
struct FewRows {
    static constexpr int kRows = rows, kDepth = kTileDepth, kStages = stages, kAtOnce = 1;
    struct Stage {
        T w[kFewRowsUnits * kTileDepth], x[kRows * kTileDepth];
    };
    float totals[1][kRows / 2] = {};

    __device__ explicit FewRows(int64_t) {}

#if HAS_WGMMA
    __device__ static void fetch(Stage& stage, const Maps& maps, const Product<T>& p, int64_t tile,
                                 int step, int matrix, Mbarrier& full) {
        const int k = step * kTileDepth;
        const auto of_w = TileRows<kFewRowsUnits>::of_w(p, tile);
        tma_load(stage.x, maps.x, k, 0, matrix, full);
        if (p.w.col != 1) {
            tma_load(stage.w, maps.w, int(of_w.first[0]), k, matrix, full);
            return;
        }
        for (int half = 0; half < 2; ++half)
            tma_load(stage.w + half * kFewRowsUnits / 2 * kTileDepth, maps.w, k,
                     int(of_w.first[half]), matrix, full);
    }
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

template <class Few, class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    Maps maps;
    if (p.rows > Few::kRows || p.x.col != 1 || (p.act == kSwiglu && p.w.col != 1)) return false;
    if (!can_few_rows<Few, Product<T>>() || !fits_tma(p)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, Few::kRows) ||
        !make_map(maps.w, p, p.w, p.units * halves(p), kFewRowsUnits / 2))
        return false;
    launch_few_rows<Few>(p, maps, p.batch, p.units * halves(p), stream);
    return true;
}

// False: there are more rows, or this GPU, or how x and w lie in memory, is not for it; or so many
// units that all multiprocessors have a tile of 128 columns of those that `specialized` fills,
// which then read w as fast and more rows of x faster.
template <class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    if (TileGrid(p, kTileRows, 128).tiles() >= multiprocessors()) return false;
    return launch_few_rows<FewRows<T, 16, 9>>(p, stream) ||
           launch_few_rows<FewRows<T, 64, 11>>(p, stream);
}
