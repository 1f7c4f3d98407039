// The wgmma version of matmul_w8a16, for up to a few hundred rows of x: the kernel of
// matmul_few_rows.cuh. TMA loads weights as bytes; each thread converts those that it multiplies
// from registers to 16-bit floats.
#pragma once

#include "int8.cuh"
#include "matmul_few_rows.cuh"
#include "matmul_w8a16_product.cuh"
#include "wgmma_registers.cuh"

constexpr int kMostFewRows = 128;

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
    static constexpr int kSlicedK = sliced_k, kGroups = sliced_k * (units / 64);
    static constexpr bool kThreadsRead = true;
    using Stage = Int8Stage<T, rows, units>;
    int tile;
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
        const bool waits = kStaggered && step == 0;
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

// ---- a few hundred rows: tiles of 256 rows of x by 128 of w, so that a weight is converted once
// per 256 rows. Each of two warpgroups has half of the units. There are no registers for separate
// accumulators of blocks of k.
template <class T>
using TallTile = FewRowsInt8<T, false, 256, 2, 1, 1, 128>;
constexpr int64_t kMostTallRows = 2048;  // with more, the weights are converted first

// Whether at least three quarters of the rows of the tiles are rows of x, and three quarters of the
// multiprocessors have a tile in every wave.
template <class T>
bool is_for_tall_tiles(const Int8Product<T>& p) {
    constexpr int64_t kRows = TallTile<T>::kRows, kUnits = TallTile<T>::kUnits;
    if (p.by_block || p.rows > kMostTallRows || !can_few_rows<TallTile<T>, Int8Product<T>>())
        return false;
    const int64_t high = ceil_div(p.rows, kRows), tiles = high * ceil_div(p.units, kUnits);
    const int64_t rounds = ceil_div<int64_t>(tiles, multiprocessors());
    return 4 * p.rows >= 3 * high * kRows && 4 * tiles >= 3 * rounds * multiprocessors();
}

// False if there are more rows, or this GPU or the layout of x and w does not allow it. If every
// multiprocessor has a tile, two resident blocks hide each other's latency; otherwise one block
// uses all of the shared memory for stages.
template <class T, bool by_block>
bool launch_few_rows_int8(const Int8Product<T>& p, cudaStream_t stream) {
    if constexpr (!by_block) {
        if (is_for_tall_tiles(p)) return launch_few_rows_int8<TallTile<T>>(p, stream);
    }
    if (p.rows > kMostFewRows) return false;
    const bool many = ceil_div<int64_t>(p.units, 64) >= multiprocessors();
    if (p.rows <= 32) {
        return (many &&
                launch_few_rows_int8<FewRowsInt8<T, by_block, 32, 6, 2, 1, 64>>(p, stream)) ||
               launch_few_rows_int8<FewRowsInt8<T, by_block, 32, 10, 1, 2, 64>>(p, stream);
    }
    if (p.rows <= 64) {
        return (many &&
                launch_few_rows_int8<FewRowsInt8<T, by_block, 64, 3, 2, 1, 64>>(p, stream)) ||
               launch_few_rows_int8<FewRowsInt8<T, by_block, 64, 8, 1, 2, 64>>(p, stream);
    }
    return launch_few_rows_int8<FewRowsInt8<T, by_block, 128, 4, 1, 2, 64>>(p, stream);
}
