// The wgmma version of matmul_w8a16, for up to a few hundred rows of x: the kernel of
// matmul_few_rows.cuh. TMA loads weights as bytes; each thread converts those that it multiplies
// from registers to 16-bit floats.
#pragma once

#include "int8.cuh"
#include "matmul_few_rows_consumer.cuh"
#include "matmul_w8a16_plan.h"
#include "matmul_w8a16_product.cuh"
#include "wgmma_registers.cuh"

template <class T, int rows, int units>
struct Int8Stage {
    static constexpr int kUnits = units, kBoxesOfX = 2;
    char w[units * kTileRow];
    T x[2][rows * kTileDepth];

#if HAS_WGMMA
    template <class Load>
    __device__ static void fetch_w(const Int8Product<T>&, int tile, int step, Load load) {
        load(0, step * kTileRow, tile * units);
    }
    __device__ void fetch_x(const Maps& maps, int step, const FewRowsTile& tile, Mbarrier& full) {
        for (int half = 0; half < 2; ++half)
            tma_load(x[half], maps.x, step * kTileRow + half * kTileDepth, tile.row, 0, full);
    }
#endif
};

// sliced_k: warpgroups that take the steps of a tile in turn, so that one converts while the other
// multiplies. Not needed where two resident blocks hide each other's latency.
template <class T, bool by_block, int rows, int stages, int blocks_per_sm, int sliced_k, int units>
struct FewRowsInt8 : FewRowsTransposed<rows, units> {
    static constexpr int kDepth = kTileRow, kStages = stages, kBlocksPerSm = blocks_per_sm,
                         kPending = 0;
    static constexpr int kMaxSplits = max_int8_splits(rows, units);
    static constexpr int kSlicedK = sliced_k, kGroups = sliced_k * (units / 64);
    static constexpr bool kThreadsRead = true;
    using Stage = Int8Stage<T, rows, units>;
    int tile;
    bool has_begun = false;  // whether a stage has been multiplied
    // Scales and biases of the thread's two rows of w: y = scale * accumulator + bias. Loaded
    // during the epilogue, they would stall it.
    float scales[2], biases[2];

    __device__ explicit FewRowsInt8(int tile) : tile(tile) {}

#if HAS_WGMMA
    __device__ void begin(const Int8Product<T>& p) {
        for (int i = 0; i < 2; ++i) {
            const int64_t unit = this->first_unit(p, tile) + threadIdx.x % kWarp / 4 + i * 8;
            const int64_t there = smaller(unit, p.units - 1);
            scales[i] = by_block ? 1.f : scale_at(p.w_scale, there, 0);
            biases[i] = p.bias ? float(p.bias[there]) : 0.f;
        }
    }
    // Transposes 8 x 8 elements at a time within a warp, so that a thread has two neighbours of a
    // row.
    __device__ void epilogue_linear(const Int8Product<T>& p, const FewRowsTile& place, int c,
                                    const Vec<float, 4>& accum) const {
        const int lane = threadIdx.x % kWarp, row = place.row + c * 8 + lane / 4;
        const int unit = this->first_unit(p, tile) + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const auto y = [&](float sum) { return scales[i] * sum + biases[i]; };
            const uint32_t pair = rounded_pair<T>(y(accum[2 * i]), y(accum[2 * i + 1]));
            store_pair(p, place, row, unit + i * 8, transposed_8x8(pair));
        }
    }

    // Loads a fragment: the 16 rows of a warp and 16 of k, from byte k on.
    __device__ static void load_fragment(uint32_t (&a)[4], const char* w, int k) {
        const int group = threadIdx.x / kWarpgroup % (units / 64);
        const int row = group * 64 + accum_row(0), column = k + threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const char* const two = w + swizzled(row + i % 2 * 8, column + i / 2 * 8);
            a[i] = pair_of_bytes<T>(*reinterpret_cast<const uint16_t*>(two), false);
        }
    }

    // Two warpgroups with units of their own are staggered: the second begins a tile when the first
    // has issued its products. From then on one converts while the other multiplies.
    static constexpr bool kStaggered = units > 64;
    static constexpr int kStaggerBarrier = 8;  // barrier number

    __device__ void multiply(const Stage& stage, const Int8Product<T>& p, int step) {
        const bool waits = kStaggered && !has_begun;
        has_begun = true;
        if (waits && threadIdx.x >= kWarpgroup)
            asm volatile("bar.sync %0, 256;" ::"n"(kStaggerBarrier) : "memory");
        uint32_t a[kDepth / 16][4];
#pragma unroll
        for (int k = 0; k < kDepth; k += 16) load_fragment(a[k / 16], stage.w, k);
        float block_accum[rows / 2];
        auto& final_accum = this->accum[0];
        auto& accum = by_block ? block_accum : final_accum;
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kDepth; k += 16) {
            const uint64_t of_x = wgmma_descriptor(stage.x[k / kTileDepth]);
            wgmma<T, false>(accum, a[k / 16], of_x + k % kTileDepth / 8, !by_block || k > 0);
        }
        wgmma_commit();
        if (waits && threadIdx.x < kWarpgroup)
            asm volatile("bar.arrive %0, 256;" ::"n"(kStaggerBarrier) : "memory");
        wgmma_wait<0>();
        if constexpr (by_block) {
            const int64_t unit = this->first_unit(p, tile) + threadIdx.x % kWarp / 4;
            const float scales[] = {
                block_scale(p, unit, step * kDepth), block_scale(p, unit + 8, step * kDepth)};
#pragma unroll
            for (int i = 0; i < rows / 2; ++i) final_accum[i] += block_accum[i] * scales[i / 2 % 2];
        }
    }
#endif
};

template <class Consumer, class T>
bool launch_few_rows_int8(const Int8Product<T>& p, cudaStream_t stream) {
    using P = Int8Product<T>;
    Maps maps;
    const int64_t most = 0x7fffffff;  // TMA has 32-bit coordinates
    if (p.rows > most || p.depth == 0 || p.depth > most || p.units > most) return false;
    if (!can_few_rows<Consumer, P>()) return false;
    if (!make_tensor_map(
            maps.x, p.x.data, 1, p.rows, p.depth, 0, p.x.row, rows_of_tile<Consumer>(p.rows)) ||
        !make_tensor_map(maps.w, p.w.data, 1, p.units, p.depth, 0, p.w.row, Consumer::kUnits))
        return false;
    return launch_few_rows<Consumer>(p, maps, 1, p.units, stream);
}

// ---- more rows: tiles of 128 rows of x by 64 units; by 128 units, each half of which is that of a
// warpgroup; and of 256 rows, so that a weight is converted once for them all. Those have no
// registers for separate accumulators of blocks of k. matmul_w8a16_plan.h chooses.
template <class T, bool by_block>
using NarrowTile = FewRowsInt8<T, by_block, 128, 4, 1, 2, 64>;
template <class T, bool by_block>
using WideTile = FewRowsInt8<T, by_block, 128, 3, 1, 1, 128>;
template <class T>
using TallTile = FewRowsInt8<T, false, 256, 2, 1, 1, 128>;

template <class T, bool by_block>
Int8Plan plan_of(const Int8Product<T>& p) {
    const bool can = can_few_rows<WideTile<T, by_block>, Int8Product<T>>();
    return can ? int8_plan(p.rows, p.units, p.depth, by_block, multiprocessors()) : kConvertFirst;
}

// False if the weights are to be converted first, or this GPU or the layout of x and w does not
// allow it. If every multiprocessor has a tile, two resident blocks hide each other's latency;
// otherwise one block uses all of the shared memory for stages.
template <class T, bool by_block>
bool launch_few_rows_int8(const Int8Product<T>& p, cudaStream_t stream) {
    const bool many = ceil_div<int64_t>(p.units, 64) >= multiprocessors();
    if (p.rows <= 32) {
        return (many &&
                launch_few_rows_int8<FewRowsInt8<T, by_block, 32, 6, 2, 1, 64>>(p, stream)) ||
               launch_few_rows_int8<FewRowsInt8<T, by_block, 32, 10, 1, 2, 64>>(p, stream);
    }
    if (p.rows <= kMostFewRows) {
        return (many &&
                launch_few_rows_int8<FewRowsInt8<T, by_block, 64, 3, 2, 1, 64>>(p, stream)) ||
               launch_few_rows_int8<FewRowsInt8<T, by_block, 64, 8, 1, 2, 64>>(p, stream);
    }
    switch (plan_of<T, by_block>(p)) {
        case kNarrowTiles:
            return launch_few_rows_int8<NarrowTile<T, by_block>>(p, stream);
        case kWideTiles:
            return launch_few_rows_int8<WideTile<T, by_block>>(p, stream);
        case kTallTiles:
            if constexpr (!by_block) return launch_few_rows_int8<TallTile<T>>(p, stream);
            return false;
        default:
            return false;
    }
}
