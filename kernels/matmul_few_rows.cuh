// matmul of few rows of x, as a model has them that writes one token after the other. All of w is
// read for them, and nothing takes as long as that.
#pragma once

#include "matmul_wgmma.cuh"

// ---- few rows: w takes the place of the 64 rows of wgmma, and x, of which there are no 64, that
// of the columns: y^T = w x^T. A block has the 64 rows of w for a tile of y^T, and a part of k; the
// blocks of a cluster have the other parts, so that there are enough of them for every
// multiprocessor to read w. At the end each block adds up its share of the rows of x over the whole
// cluster, always in the same order.

template <class T, int rows>
struct FewRows {
    static constexpr int kRows = rows, kUnits = 64;
    static constexpr int kStages = rows == 16 ? 9 : 5;  // two blocks fit a multiprocessor
    static constexpr int kThreads = kWarpgroup + kWarp;
    struct Shared {
        struct {
            T w[kUnits * kTileDepth], x[rows * kTileDepth];
        } stages[kStages];
        float sums[rows][kUnits + 1];  // + 1: for columns' banks
        Mbarrier full[kStages], empty[kStages];
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

template <class T, class Few>
__global__ void WGMMA_KERNEL(Few::kThreads)
    matmul_few_rows(const __grid_constant__ Maps maps, Product<T> p, int64_t tiles, int parts) {
#if HAS_WGMMA
    constexpr int kStages = Few::kStages, kRows = Few::kRows, kUnits = Few::kUnits;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Few::Shared>(dynamic);
    const int part = blockIdx.x % parts;
    const int64_t tile = blockIdx.x / parts % tiles, matrix = blockIdx.x / parts / tiles;
    const auto of_w = TileRows<kUnits>::of_w(p, tile);
    const int steps = int(ceil_div<int64_t>(p.depth, kTileDepth));
    const int each = ceil_div(steps, parts);
    const int first = smaller(part * each, steps), end = smaller(first + each, steps);
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) full.init();
        for (Mbarrier& empty : shared.empty) empty.init();
    }
    __syncthreads();

    Ring<kStages> ring;
    if (threadIdx.x >= kWarpgroup) {
        for (int step = first; step < end && threadIdx.x == kWarpgroup; ++step, ring.next()) {
            auto& stage = shared.stages[ring.stage];
            Mbarrier& full = shared.full[ring.stage];
            shared.empty[ring.stage].wait((ring.round + 1) % 2);
            full.arrive_expect_tx(sizeof(stage));
            tma_load(stage.x, maps.x, step * kTileDepth, 0, int(matrix), full);
            if (p.w.col != 1) {
                tma_load(stage.w, maps.w, int(of_w.first[0]), step * kTileDepth, int(matrix), full);
                continue;
            }
            for (int half = 0; half < 2; ++half)
                tma_load(stage.w + half * kUnits / 2 * kTileDepth, maps.w, step * kTileDepth,
                         int(of_w.first[half]), int(matrix), full);
        }
    } else {
        float sums[kRows / 2] = {};
        for (int step = first; step < end; ++step, ring.next()) {
            const auto& stage = shared.stages[ring.stage];
            shared.full[ring.stage].wait(ring.round % 2);
            if (p.w.col == 1) {
                multiply<false, false>(sums, stage.w, stage.x, true);
            } else {
                multiply<true, false>(sums, stage.w, stage.x, true);
            }
            wgmma_wait<0>();
            if (threadIdx.x == 0) shared.empty[ring.stage].arrive();
        }
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) shared.sums[column_of_sum(i)][row_of_sum(i)] = sums[i];
    }
    if (parts > 1) {
        cluster_arrive_release();
        cluster_wait();
    } else {
        __syncthreads();
    }
    const int units = kUnits / halves(p);
    for (int i = part * blockDim.x + threadIdx.x; i < kRows * units; i += parts * blockDim.x) {
        const int row = i / units, column = i % units;
        const int64_t unit = tile * units + column;
        if (row >= p.rows || unit >= p.units) continue;
        float sum = 0, gate = 0;
        for (int n = 0; n < parts; ++n) {
            sum += load_from(n, &shared.sums[row][column]);
            if (p.act == kSwiglu) gate += load_from(n, &shared.sums[row][column + units]);
        }
        put(p, matrix, row, unit, sum, gate);
    }
    if (parts > 1) {  // others read this block's sums
        cluster_arrive();
        cluster_wait();
    }
#endif
}

template <class Few, class T>
bool launch_few_rows(const Product<T>& p, cudaStream_t stream) {
    const auto kernel = matmul_few_rows<T, Few>;
    Maps maps;
    if (p.rows > Few::kRows || p.x.col != 1 || (p.act == kSwiglu && p.w.col != 1)) return false;
    if (!has_wgmma(kernel, Few::kThreads) || !fits_tma(p)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, Few::kRows) ||
        !make_map(maps.w, p, p.w, p.units * halves(p), Few::kUnits / 2))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Few::kBytes);
    const int64_t tiles = ceil_div<int64_t>(p.units * halves(p), Few::kUnits);
    const int64_t steps = ceil_div<int64_t>(p.depth, kTileDepth);
    int parts = 1;
    while (parts < kClusterBlocks && p.batch * tiles * parts * 2 <= 2 * multiprocessors() &&
           steps >= 8 * parts)
        parts *= 2;
    launch_clusters(kernel, parts, unsigned(p.batch * tiles * parts), Few::kThreads, Few::kBytes,
                    stream, maps, p, tiles, parts);
    return true;
}
