// The version of matmul_fp8 by wgmma and TMA, for GPUs of compute capability 9.0.
#pragma once

#include "matmul_fp8_product.cuh"
#include "matmul_wgmma.cuh"
#include "wgmma_float8.cuh"

// ---- wgmma: blocks that stay, one for each multiprocessor, as in the best version of matmul. A
// warpgroup asks TMA for stages of 128 of k; two have 64 x 128 elements of y each. Hopper's sums of
// such products keep some 14 bits: so the sums over a stage are multiplied by their scales and
// added up in float, while the tensor cores have the products of the next one.
// (The idea is DeepGEMM's: DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.3.2.)
// Flaw: of few rows most of a tile is empty, and few blocks read w.

struct Float8Plan {
    static constexpr int kSide = 128, kStages = 6, kThreads = (kConsumers + 1) * kWarpgroup;
    struct Stage {
        Float8 x[kSide * kScaleBlock], w[kSide * kScaleBlock];
    };
    using Shared = StagesAndBoxes<Stage, kStages>;
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

#if HAS_WGMMA

// Begins the sums over a stage, of 64 rows of x.
__device__ inline void multiply_stage(float (&sums)[64], const Float8* x, const Float8* w) {
    const uint64_t of_x = wgmma_descriptor(x), of_w = wgmma_descriptor(w);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kScaleBlock / 32; ++k)
        wgmma_float8(sums, of_x + k * 2, of_w + k * 2, k > 0);
    wgmma_commit();
}

// What the sums over a stage are multiplied by: in a thread's two rows of x, and in all columns.
struct StageScales {
    float x[2], w;

    __device__ void add(float (&totals)[64], const float (&sums)[64]) const {
        const float both[2] = {x[0] * w, x[1] * w};
#pragma unroll
        for (int i = 0; i < 64; ++i) totals[i] += sums[i] * both[i / 2 % 2];
    }
};

// Where those of a tile are.
struct TileScales {
    const float *x[2], *w;  // null unless they differ along k
    int64_t x_step, w_step;

    template <class T>
    __device__ TileScales(const Float8Product<T>& p, int64_t row, int64_t unit)
        : w(nullptr), x_step(p.x_scale.block), w_step(p.w_scale.block) {
        if (!p.by_block) return;
        for (int i = 0; i < 2; ++i)
            x[i] = &scale_at(p.x_scale, smaller(row + row_of_sum(2 * i), p.rows - 1), 0);
        w = &scale_at(p.w_scale, unit, 0);
    }
    __device__ StageScales of(int step) const {
        if (w == nullptr) return {{1, 1}, 1};
        return {{x[0][step * x_step], x[1][step * x_step]}, w[step * w_step]};
    }
};

// A warpgroup's totals, 64 rows from `row` on and 128 columns from `unit` on, made to elements of
// y. What they need of a column is loaded for all columns before any of it is used.
template <class T>
__device__ void finish(float (&totals)[64], const Float8Product<T>& p, int64_t row, int64_t unit) {
    const auto column = [&](int i) { return smaller(unit + column_of_sum(i), p.units - 1); };
    if (!p.by_block) {
        float of_x[2], of_w[32];
#pragma unroll
        for (int i = 0; i < 2; ++i)
            of_x[i] = scale_at(p.x_scale, smaller(row + row_of_sum(2 * i), p.rows - 1), 0);
#pragma unroll
        for (int i = 0; i < 32; ++i) of_w[i] = scale_at(p.w_scale, column(i / 2 * 4 + i % 2), 0);
#pragma unroll
        for (int i = 0; i < 64; ++i)
            totals[i] = totals[i] * of_x[i / 2 % 2] * of_w[i / 4 * 2 + i % 2];
    }
    if (p.bias) {
        float bias[32];
#pragma unroll
        for (int i = 0; i < 32; ++i) bias[i] = float(p.bias[column(i / 2 * 4 + i % 2)]);
#pragma unroll
        for (int i = 0; i < 64; ++i) totals[i] += bias[i / 4 * 2 + i % 2];
    }
}

// The same to memory, where TMA cannot: one element after the other.
template <class T>
__device__ void store_each(const float (&totals)[64], const Float8Product<T>& p, int64_t row,
                           int64_t unit) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        const int64_t r = row + row_of_sum(i), u = unit + column_of_sum(i);
        if (r < p.rows && u < p.units) p.y[r * p.units + u] = T(totals[i]);
    }
}

#endif

// stores: y by TMA.
template <class T>
__global__ void WGMMA_KERNEL(Float8Plan::kThreads)
    matmul_fp8_wgmma(const __grid_constant__ Maps maps, Float8Product<T> p, TileOrder order,
                     bool stores) {
#if HAS_WGMMA
    using Plan = Float8Plan;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<Plan::Shared>(dynamic);
    const int steps = int(ceil_div<int64_t>(p.depth, kScaleBlock));
    const int group = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) full.init();
        for (Mbarrier& empty : shared.empty) empty.init(kConsumers);
    }
    __syncthreads();

    Ring<Plan::kStages> ring, read;  // the stage that is multiplied next; that has been read next
    TilePlace place;
    if (group == kConsumers) {
        give_registers<40>();
        for (int n = blockIdx.x; thread == 0 && order.at(n, 0, place); n += gridDim.x) {
            for (int step = 0; step < steps; ++step, ring.next()) {
                auto& stage = shared.stages[ring.stage];
                Mbarrier& full = shared.full[ring.stage];
                shared.empty[ring.stage].wait((ring.round + 1) % 2);
                full.arrive_expect_tx(sizeof(stage));
                const int k = step * kScaleBlock;
                tma_load(stage.x, maps.x, k, int(place.row) * Plan::kSide, 0, full);
                tma_load(stage.w, maps.w, k, int(place.column) * Plan::kSide, 0, full);
            }
        }
        return;
    }
    take_registers<232>();
    int stored = 0;
    for (int n = blockIdx.x; order.at(n, 0, place); n += gridDim.x) {
        const int row = int(place.row) * Plan::kSide + group * 64;
        const int unit = int(place.column) * Plan::kSide;
        float totals[64] = {}, even[64], odd[64];
        const TileScales scales(p, row, unit);
        StageScales of_even, of_odd;
        // The products of a step go on while those of the step before are added up.
        const auto begin = [&](float (&sums)[64], StageScales& by, int step) {
            by = scales.of(step);
            shared.full[ring.stage].wait(ring.round % 2);
            const auto& stage = shared.stages[ring.stage];
            multiply_stage(sums, stage.x + group * 64 * kScaleBlock, stage.w);
            ring.next();
        };
        const auto add = [&](const float (&sums)[64], const StageScales& by) {
            if (thread == 0) shared.empty[read.stage].arrive();
            read.next();
            by.add(totals, sums);
        };
        begin(even, of_even, 0);
        int step = 1;
        for (; step + 1 < steps; step += 2) {
            begin(odd, of_odd, step);
            wgmma_wait<1>();
            add(even, of_even);
            begin(even, of_even, step + 1);
            wgmma_wait<1>();
            add(odd, of_odd);
        }
        if (step < steps) {
            begin(odd, of_odd, step);
            wgmma_wait<1>();
            add(even, of_even);
            wgmma_wait<0>();
            add(odd, of_odd);
        } else {
            wgmma_wait<0>();
            add(even, of_even);
        }
        finish(totals, p, row, unit);
        if (stores) {
            store_scaled<T>(totals, 1.f, shared.boxes[group], maps.y, 0, row, unit, group, stored);
        } else {
            store_each(totals, p, row, unit);
        }
    }
    if (stores && thread == 0) tma_store_wait();
#endif
}

// False: this GPU, or how x and w lie in memory, is not for it.
template <class T>
bool launch_fp8_wgmma(const Float8Product<T>& p, cudaStream_t stream) {
    using Plan = Float8Plan;
    const int64_t most = 0x7fffffff - Plan::kSide;  // TMA counts in 32 bits
    Maps maps;
    const auto map = [&](CUtensorMap& to, const auto* data, int64_t rows, int64_t cols,
                         int64_t stride, int high) {
        return make_tensor_map(to, data, 1, rows, cols, 0, stride, high);
    };
    if (!has_wgmma(matmul_fp8_wgmma<T>, Plan::kThreads) || Plan::kBytes > shared_bytes() ||
        p.depth == 0 || p.rows > most || p.units > most || p.depth > most)
        return false;
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w) ||
        !map(maps.x, p.x.data, p.rows, p.depth, p.x.row, Plan::kSide) ||
        !map(maps.w, p.w.data, p.units, p.depth, p.w.row, Plan::kSide))
        return false;
    const TileGrid grid(1, p.rows, p.units, Plan::kSide, Plan::kSide);
    if (grid.tiles() > 0x3fffffff) return false;  // which are counted in 32 bits
    const bool stores =
        is_aligned(p.y) && p.units % kVec<T> == 0 && map(maps.y, p.y, p.rows, p.units, p.units, 64);
    const TileOrder order(grid, 1, 16);
    cudaFuncSetAttribute(
        matmul_fp8_wgmma<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const int blocks = smaller(order.places(), multiprocessors());
    matmul_fp8_wgmma<<<blocks, Plan::kThreads, Plan::kBytes, stream>>>(maps, p, order, stores);
    return true;
}
