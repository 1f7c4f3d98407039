// The version of matmul_fp8 by wgmma and TMA, for GPUs of compute capability 9.0.
#pragma once

#include "matmul_fp8_product.cuh"
#include "matmul_wgmma.cuh"
#include "wgmma_float8.cuh"

// ---- wgmma: blocks that stay, one for each multiprocessor, as in the best version of matmul. A
// warpgroup asks TMA for stages of 128 of k; two have 64 rows of the block's tile each. Hopper's
// sums of such products keep some 14 bits: so the sums over a stage are multiplied by their scales
// and added up in float, while the tensor cores have the products of the next one.
// (The idea is DeepGEMM's: DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.3.2.)
// Flaw: of few rows most of a tile is empty, and few blocks read w.

// The first row and column of a tile.
struct TileCorner {
    int row, column;
};

// by_block: scales differ along k. fast: tensor cores alone add up the sums, over all of k; then a
// thread has registers for those of 256 columns, and else of 128.
template <int columns, bool by_block, bool fast>
struct Float8Plan {
    static_assert(fast ? !by_block : columns <= 128);
    static constexpr bool kByBlock = by_block, kFast = fast;
    static constexpr int kColumns = columns;
    static constexpr int kStages = columns == 256 ? 4 : columns == 128 ? 6 : 8;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    static constexpr int kBox = columns < 128 ? columns : 128;  // rows of w that TMA loads at once
    static constexpr int kBoxes = columns / kBox;
    struct Stage {
        Float8 x[kTileRows * kScaleBlock], w[columns * kScaleBlock];
    };
    struct Shared : StagesAndBoxes<Stage, kStages> {
        TileCorner corners[kStages];  // of the tile that begins with a stage
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

#if HAS_WGMMA

// Begins the sums over a stage, of 64 rows of x; or if `adds`, adds them to others.
template <int N>
__device__ void multiply_stage(float (&sums)[N], const Float8* x, const Float8* w,
                               bool adds = false) {
    const uint64_t of_x = wgmma_descriptor(x), of_w = wgmma_descriptor(w);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kScaleBlock / 32; ++k)
        wgmma_float8(sums, of_x + k * 2, of_w + k * 2, adds || k > 0);
    wgmma_commit();
}

// What the sums over a stage are multiplied by: in a thread's two rows of x, and in all columns.
struct StageScales {
    float x[2], w;

    template <int N>
    __device__ void add(float (&totals)[N], const float (&sums)[N]) const {
        const float both[2] = {x[0] * w, x[1] * w};
#pragma unroll
        for (int i = 0; i < N; ++i) totals[i] += sums[i] * both[i / 2 % 2];
    }
};

// The row of x of a warpgroup's sum i, or the last one there is.
template <class T>
__device__ int64_t row_there(const Float8Product<T>& p, TileCorner tile, int group, int i) {
    return smaller<int64_t>(tile.row + group * 64 + row_of_sum(i), p.rows - 1);
}

// Where those of a tile are, if they differ along k.
template <bool by_block>
struct TileScales {
    const float *x[2], *w;
    int64_t x_step, w_step;

    template <class T>
    __device__ TileScales(const Float8Product<T>& p, TileCorner tile, int group)
        : w(&scale_at(p.w_scale, tile.column, 0)),
          x_step(p.x_scale.block),
          w_step(p.w_scale.block) {
        for (int i = 0; i < 2; ++i)
            x[i] = &scale_at(p.x_scale, row_there(p, tile, group, 2 * i), 0);
    }
    __device__ StageScales of(int step) const {
        return {{x[0][step * x_step], x[1][step * x_step]}, w[step * w_step]};
    }
};
template <>
struct TileScales<false> {
    template <class T>
    __device__ TileScales(const Float8Product<T>&, TileCorner, int) {}
    __device__ StageScales of(int) const { return {{1, 1}, 1}; }
};

// The stages that a warpgroup multiplies, one after the other.
template <class Plan>
struct StageReader {
    typename Plan::Shared& shared;
    Ring<Plan::kStages> ring, read;  // the stage that comes next; that is read next

    // Where the tile is that begins with the next stage.
    __device__ TileCorner corner() const {
        shared.full[ring.stage].wait(ring.round % 2);
        return shared.corners[ring.stage];
    }
    __device__ const typename Plan::Stage& next() {
        shared.full[ring.stage].wait(ring.round % 2);
        const auto& stage = shared.stages[ring.stage];
        ring.next();
        return stage;
    }
    __device__ void done() {
        if (threadIdx.x % kWarpgroup == 0) shared.empty[read.stage].arrive();
        read.next();
    }
};

// The totals over all k, by two sets of sums: the products of a step go on while those of the step
// before are added up. meanwhile(): called while the last products go on.
template <class Plan, int N, class Meanwhile>
__device__ void add_up(float (&totals)[N], StageReader<Plan>& reader,
                       const TileScales<Plan::kByBlock>& scales, int of_tile, int steps,
                       Meanwhile meanwhile) {
    float even[N], odd[N];
    StageScales of_even, of_odd;
    const auto begin = [&](float (&sums)[N], StageScales& by, int step) {
        by = scales.of(step);
        const auto& stage = reader.next();
        multiply_stage(sums, stage.x + of_tile, stage.w);
    };
    const auto add = [&](const float (&sums)[N], const StageScales& by) {
        reader.done();
        by.add(totals, sums);
    };
    for (float& total : totals) total = 0;
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
        meanwhile();
        wgmma_wait<0>();
        add(odd, of_odd);
    } else {
        meanwhile();
        wgmma_wait<0>();
        add(even, of_even);
    }
}

// The same by tensor cores alone.
template <class Plan, int N, class Meanwhile>
__device__ void add_up_fast(float (&totals)[N], StageReader<Plan>& reader, int of_tile, int steps,
                            Meanwhile meanwhile) {
    for (int step = 0; step < steps; ++step) {
        const auto& stage = reader.next();
        multiply_stage(totals, stage.x + of_tile, stage.w, step > 0);
        wgmma_wait<1>();  // the products of the step before are done
        if (step > 0) reader.done();
    }
    meanwhile();
    wgmma_wait<0>();
    reader.done();
}

// What makes elements of y of the totals: bias, and scales unless they are in the totals already. A
// thread asks for that of its two rows, and of a column in each box, before the sums, and shares it
// while the last products go on.
template <class Plan>
struct TileEnd {
    struct OfColumns {
        float scales[Plan::kColumns], biases[Plan::kColumns];
    };
    float of_row[2], scale[Plan::kBoxes], bias[Plan::kBoxes];

    template <class T>
    __device__ void ask(const Float8Product<T>& p, TileCorner tile, int group) {
        for (int i = 0; i < 2; ++i) {
            of_row[i] =
                Plan::kByBlock ? 1 : scale_at(p.x_scale, row_there(p, tile, group, 2 * i), 0);
        }
        for (int i = 0; i < Plan::kBoxes; ++i) {
            const int64_t unit = tile.column + i * kWarpgroup + threadIdx.x % kWarpgroup;
            const int64_t there = smaller(unit, p.units - 1);
            scale[i] = Plan::kByBlock ? 1 : scale_at(p.w_scale, there, 0);
            bias[i] = p.bias ? float(p.bias[there]) : 0;
        }
    }

    // memory: of the warpgroup, which waits until all have come here.
    __device__ void share(Boxes& memory, int group) const {
        const int thread = threadIdx.x % kWarpgroup;
        if (thread == 0) tma_store_wait_read<0>();  // what the box held before is stored
        warpgroup_barrier(group);
        OfColumns& columns = of_columns(memory);
        for (int i = 0; i < Plan::kBoxes && thread < Plan::kColumns; ++i) {
            columns.scales[i * kWarpgroup + thread] = scale[i];
            columns.biases[i * kWarpgroup + thread] = bias[i];
        }
        warpgroup_barrier(group);
    }

    template <int N>
    __device__ void finish(float (&totals)[N], Boxes& memory, bool adds_bias) const {
        const OfColumns& columns = of_columns(memory);
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const auto two = load<2>(columns.scales + column_of_sum(i));
            totals[i] = totals[i] * of_row[i / 2 % 2] * two[0];
            totals[i + 1] = totals[i + 1] * of_row[i / 2 % 2] * two[1];
        }
        if (!adds_bias) return;
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const auto two = load<2>(columns.biases + column_of_sum(i));
            totals[i] += two[0];
            totals[i + 1] += two[1];
        }
    }

  private:
    __device__ static OfColumns& of_columns(Boxes& memory) {
        return *reinterpret_cast<OfColumns*>(memory.chunks[0]);
    }
};

// The same to memory, where TMA cannot: one element after the other.
template <class T, int N>
__device__ void store_each(const float (&totals)[N], const Float8Product<T>& p, int64_t row,
                           int64_t unit) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int64_t r = row + row_of_sum(i), u = unit + column_of_sum(i);
        if (r < p.rows && u < p.units) p.y[r * p.units + u] = T(totals[i]);
    }
}

#endif

// stores: y by TMA.
template <class T, class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    matmul_fp8_wgmma(const __grid_constant__ Maps maps, Float8Product<T> p, TileOrder order,
                     bool stores) {
#if HAS_WGMMA
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const int steps = int(ceil_div<int64_t>(p.depth, kScaleBlock));
    // The shuffle tells the compiler that it is the same in a warp: else it keeps descriptors in
    // each thread's registers, and moves them from there between products.
    const int group = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
    const int thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) full.init();
        for (Mbarrier& empty : shared.empty) empty.init(kConsumers);
    }
    __syncthreads();

    const auto corner_of = [&](int n) {
        TilePlace place;
        order.at(n, 0, place);
        return TileCorner{int(place.row) * kTileRows, int(place.column) * Plan::kColumns};
    };
    if (group == kConsumers) {
        give_registers<40>();
        Ring<Plan::kStages> ring;
        for (int n = blockIdx.x; thread == 0 && n < order.places(); n += gridDim.x) {
            const TileCorner corner = corner_of(n);
            for (int step = 0; step < steps; ++step, ring.next()) {
                auto& stage = shared.stages[ring.stage];
                Mbarrier& full = shared.full[ring.stage];
                shared.empty[ring.stage].wait((ring.round + 1) % 2);
                shared.corners[ring.stage] = corner;
                full.arrive_expect_tx(sizeof(stage));
                const int k = step * kScaleBlock;
                tma_load(stage.x, maps.x, k, corner.row, 0, full);
                for (int c = 0; c < Plan::kColumns; c += Plan::kBox)
                    tma_load(stage.w + c * kScaleBlock, maps.w, k, corner.column + c, 0, full);
            }
        }
        return;
    }
    take_registers<232>();
    StageReader<Plan> reader = {shared};
    const int of_tile = group * 64 * kScaleBlock;
    Boxes& boxes = shared.boxes[group];
    int stored = 0, left = ceil_div<int>(order.places() - int(blockIdx.x), gridDim.x);
    TileCorner corner, next_corner = corner_of(blockIdx.x);  // before its first stage is there
    TileEnd<Plan> end, next_end;
    next_end.ask(p, next_corner, group);
    for (; left > 0; --left) {
        corner = next_corner;
        end = next_end;
        const auto meanwhile = [&] {
            if (!Plan::kByBlock || p.bias) end.share(boxes, group);
            if (left == 1) return;
            next_corner = reader.corner();
            next_end.ask(p, next_corner, group);
        };
        float totals[Plan::kColumns / 2];
        if constexpr (Plan::kFast) {
            add_up_fast(totals, reader, of_tile, steps, meanwhile);
        } else {
            const TileScales<Plan::kByBlock> scales(p, corner, group);
            add_up(totals, reader, scales, of_tile, steps, meanwhile);
        }
        if (!Plan::kByBlock || p.bias) end.finish(totals, boxes, p.bias);
        const int row = corner.row + group * 64;
        auto& of_boxes = reinterpret_cast<float (&)[Plan::kBoxes][Plan::kBox / 2]>(totals);
#pragma unroll
        for (int i = 0; i < Plan::kBoxes; ++i) {
            const int unit = corner.column + i * Plan::kBox;
            if (stores) {
                store_scaled<T>(of_boxes[i], 1.f, boxes, maps.y, 0, row, unit, group, stored);
            } else {
                store_each(of_boxes[i], p, row, unit);
            }
        }
    }
    if (stores && thread == 0) tma_store_wait();
#endif
}

// False: this GPU, or how x and w lie in memory, is not for it.
template <class Plan, class T>
bool launch_fp8_tiles(const Float8Product<T>& p, cudaStream_t stream) {
    const auto kernel = matmul_fp8_wgmma<T, Plan>;
    const int64_t most = 0x7fffffff - Plan::kColumns;  // TMA counts in 32 bits
    Maps maps;
    const auto map = [&](CUtensorMap& to, const auto* data, int64_t rows, int64_t cols,
                         int64_t stride, int high) {
        return make_tensor_map(to, data, 1, rows, cols, 0, stride, high);
    };
    if (!has_wgmma(kernel, Plan::kThreads) || Plan::kBytes > shared_bytes() || p.depth == 0 ||
        p.rows > most || p.units > most || p.depth > most)
        return false;
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w) ||
        !map(maps.x, p.x.data, p.rows, p.depth, p.x.row, kTileRows) ||
        !map(maps.w, p.w.data, p.units, p.depth, p.w.row, Plan::kBox))
        return false;
    const TileGrid grid(1, p.rows, p.units, kTileRows, Plan::kColumns);
    if (grid.tiles() > 0x3fffffff) return false;  // which are counted in 32 bits
    const bool stores =
        is_aligned(p.y) && p.units % kVec<T> == 0 && map(maps.y, p.y, p.rows, p.units, p.units, 64);
    // Of wide tiles more lie below one another: what rows of x they read stays in L2 for longer.
    const TileOrder order(grid, 1, Plan::kColumns == 256 ? 32 : 16);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const int blocks = smaller(order.places(), multiprocessors());
    matmul_fp8_wgmma<T, Plan>
        <<<blocks, Plan::kThreads, Plan::kBytes, stream>>>(maps, p, order, stores);
    return true;
}

// What a stage of tiles of so many columns takes, beside one of 128. Measured on an H200.
inline double cost_of_stage(int columns) {
    return columns == 256 ? 1.9 : columns == 128 ? 1 : 0.72;
}

// Tiles of as many columns as are done first; of two that take as long, the wider ones.
template <bool by_block, bool fast, class T>
bool launch_fp8_best_tiles(const Float8Product<T>& p, cudaStream_t stream) {
    const auto cost = [&](int columns) {
        const int64_t tiles = TileGrid(1, p.rows, p.units, kTileRows, columns).tiles();
        return cost_of_stage(columns) * double(ceil_div<int64_t>(tiles, multiprocessors()));
    };
    if constexpr (fast) {
        if (cost(256) <= smaller(cost(128), cost(64)))
            return launch_fp8_tiles<Float8Plan<256, by_block, fast>>(p, stream);
    }
    return cost(128) <= cost(64) ? launch_fp8_tiles<Float8Plan<128, by_block, fast>>(p, stream)
                                 : launch_fp8_tiles<Float8Plan<64, by_block, fast>>(p, stream);
}

template <class T>
bool launch_fp8_wgmma(const Float8Product<T>& p, cudaStream_t stream) {
    if (p.fast) return launch_fp8_best_tiles<false, true>(p, stream);
    return p.by_block ? launch_fp8_best_tiles<true, false>(p, stream)
                      : launch_fp8_best_tiles<false, false>(p, stream);
}
