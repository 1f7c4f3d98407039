// The wgmma version of matmul_fp8, for GPUs of compute capability 9.0.
#pragma once

#include "dependent_launch.cuh"
#include "matmul_fp8_product.cuh"
#include "matmul_scheduler.cuh"
#include "wgmma_float8.cuh"

// ---- wgmma: persistent blocks with a producer warpgroup and two consumer warpgroups, as in the
// best version of matmul. A stage has 128 of k; each consumer has 64 rows of the tile. Accumulators
// of these tensor cores keep some 14 bits on Hopper. So the accumulators of each stage are
// multiplied by their scales and promoted to float sums on the CUDA cores, while the tensor cores
// multiply the next stage. (The idea is DeepGEMM's: DeepSeek-AI, "DeepSeek-V3 technical report",
// 2024, section 3.3.2.)
// Flaw: with few rows most of a tile is empty, and few blocks read w. They have a kernel of their
// own, in matmul_fp8_few_rows.cuh.

// The first row and column of a tile.
struct TileCorner {
    int row, column;
};

// by_block: scales differ along k. fast: the tensor cores accumulate over all of k.
template <int columns, bool by_block, bool fast>
struct Float8Plan {
    static_assert(columns <= 128 && !(fast && by_block));
    static constexpr bool kByBlock = by_block, kFast = fast;
    static constexpr int kColumns = columns, kPair = 1;  // cluster size
    static constexpr int kStages = columns == 128 ? 6 : 8;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    static constexpr int kBox = columns;  // rows of w that TMA loads at once
    static constexpr int kMBlocks = 1;    // blocks of 64 rows of a warpgroup
    struct Stage {
        Float8 x[kTileRows * kScaleBlock], w[columns * kScaleBlock];
    };
    struct Shared : PipelineStorage<Stage, kStages> {
        TileCorner corners[kStages];  // of the tile after the one that starts with this stage
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

#if HAS_WGMMA

// Issues the products of a stage, for m_blocks of 64 rows of x. adds: keep the accumulators.
template <int m_blocks, int N>
__device__ void multiply_stage(float (&accum)[m_blocks][N], const Float8* x, const Float8* w,
                               bool adds = false) {
    constexpr int kBlock = 64 * kScaleBlock >> 4;  // in units of descriptors
    const uint64_t of_x = wgmma_descriptor(x), of_w = wgmma_descriptor(w);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kScaleBlock / 32; ++k) {
#pragma unroll
        for (int i = 0; i < m_blocks; ++i)
            wgmma_float8(accum[i], of_x + i * kBlock + k * 2, of_w + k * 2, adds || k > 0);
    }
    wgmma_commit();
}

// The row of x of accumulator i, clamped to the last one.
template <class T>
__device__ int64_t row_there(const Float8Product<T>& p, TileCorner tile, int group, int i) {
    return smaller<int64_t>(tile.row + group * 64 + accum_row(i), p.rows - 1);
}

constexpr int kScalesAtOnce = 8;  // steps

// The scales of each step of a tile where they differ along k: a thread's two scales of x, times
// that of w, which is uniform. Loading them in each step would stall the products. So they are
// prefetched for eight steps at a time, those of w for 32, and the first ones of a tile during the
// last steps of the previous tile. Each of the four lanes that share rows holds two of eight steps,
// and a step costs two shuffles.
template <class T, bool by_block>
class TileScales {
    const Float8Product<T>& p_;
    const float *x_[2], *w_;
    int steps_, group_;
    TileCorner next_tile_;
    float here_[2][2], asked_[2][2];  // of x, times w, for these 8 steps; of x, for those to come
    float here_of_w_, asked_of_w_;    // for these 32 steps, and for those to come

    __device__ void go_to_x(TileCorner tile) {
        for (int i = 0; i < 2; ++i)
            x_[i] = &scale_at(p_.x_scale, row_there(p_, tile, group_, 2 * i), 0);
    }
    __device__ void go_to_w(TileCorner tile) { w_ = &scale_at(p_.w_scale, tile.column, 0); }
    __device__ void ask_for_x(int first) {
        for (int n = 0; n < 2; ++n) {
            const int step = smaller(first + n * 4 + int(threadIdx.x % 4), steps_ - 1);
            for (int i = 0; i < 2; ++i) asked_[i][n] = x_[i][step * p_.x_scale.block];
        }
    }
    __device__ void ask_for_w(int first) {
        const int step = smaller(first + int(threadIdx.x % kWarp), steps_ - 1);
        asked_of_w_ = w_[step * p_.w_scale.block];
    }

  public:
    __device__ TileScales(const Float8Product<T>& p, TileCorner tile, int group, int steps)
        : p_(p), steps_(steps), group_(group) {
        go_to_x(tile);
        go_to_w(tile);
        ask_for_x(0);
        ask_for_w(0);
    }
    // Sets the next tile. Called before the steps of each tile.
    __device__ void set_next(TileCorner tile) { next_tile_ = tile; }

    // Called before `take` in every step that is a multiple of kScalesAtOnce.
    __device__ void enter(int step) {
        const int of_w = step % kWarp;
        if (of_w == 0) {
            here_of_w_ = asked_of_w_;
            const bool more = step + kWarp < steps_;
            if (!more) go_to_w(next_tile_);
            ask_for_w(more ? step + kWarp : 0);
        }
        for (int n = 0; n < 2; ++n) {
            const float w =
                __shfl_sync(0xffffffff, here_of_w_, of_w + n * 4 + int(threadIdx.x % 4));
            for (int i = 0; i < 2; ++i) here_[i][n] = asked_[i][n] * w;
        }
        const bool more = step + kScalesAtOnce < steps_;
        if (!more) go_to_x(next_tile_);
        ask_for_x(more ? step + kScalesAtOnce : 0);
    }
    __device__ void take(float (&by)[2], int step) const {
        const int lane = int(threadIdx.x % kWarp & ~3u) + step % 4;
        for (int i = 0; i < 2; ++i)
            by[i] = __shfl_sync(0xffffffff, step & 4 ? here_[i][1] : here_[i][0], lane);
    }
};
template <class T>
struct TileScales<T, false> {
    __device__ TileScales(const Float8Product<T>&, TileCorner, int, int) {}
    __device__ void set_next(TileCorner) {}
    __device__ void enter(int) {}
    __device__ void take(float (&by)[2], int) const { by[0] = by[1] = 1; }
};

// The consumer side of the pipeline.
template <class Plan>
struct StageReader {
    typename Plan::Shared& shared;
    Pair<Plan::kPair> pair;
    PipelineState<Plan::kStages> pipe, released;  // the next stage to read; to release

    // The tile after the one that begins with the next stage.
    __device__ TileCorner corner() const {
        shared.full[pipe.stage].wait(pipe.phase % 2);
        return shared.corners[pipe.stage];
    }
    __device__ const typename Plan::Stage& next() {
        shared.full[pipe.stage].wait(pipe.phase % 2);
        const auto& stage = shared.stages[pipe.stage];
        pipe.next();
        return stage;
    }
    __device__ void release() {
        pair.consumer_release(shared.empty[released.stage], threadIdx.x % kWarpgroup);
        released.next();
    }
};

// The mainloop with promotion, with two sets of accumulators: the products of a step run while
// those of the previous step are added to final_accum. Scales are fetched one step ahead; fetching
// them on use would delay the additions and the next products. meanwhile(): runs during the last
// products.
template <class Plan, int N, class Scales, class Meanwhile>
__device__ void add_up(float (&final_accum)[N], StageReader<Plan>& reader, Scales& scales,
                       int of_tile, int steps, Meanwhile meanwhile) {
    float even[1][N], odd[1][N], of_even[2], of_odd[2];
    const auto begin = [&](float (&accum)[1][N]) {
        const auto& stage = reader.next();
        multiply_stage(accum, stage.x + of_tile, stage.w);
    };
    const auto add = [&](const float (&accum)[1][N], const float (&by)[2]) {
        reader.release();
#pragma unroll
        for (int i = 0; i < N; ++i) final_accum[i] += accum[0][i] * by[i / 2 % 2];
    };
    for (float& total : final_accum) total = 0;
    begin(even);
    scales.enter(0);
    scales.take(of_even, 0);
    int step = 1;
    for (; step + 1 < steps; step += 2) {
        begin(odd);
        wgmma_wait<1>();
        scales.take(of_odd, step);
        add(even, of_even);
        begin(even);
        if ((step + 1) % kScalesAtOnce == 0) scales.enter(step + 1);
        wgmma_wait<1>();
        scales.take(of_even, step + 1);
        add(odd, of_odd);
    }
    if (step < steps) {
        begin(odd);
        wgmma_wait<1>();
        scales.take(of_odd, step);
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

// The mainloop where tensor cores alone accumulate.
template <class Plan, int N, class Meanwhile>
__device__ void add_up_fast(float (&final_accum)[N], StageReader<Plan>& reader, int of_tile,
                            int steps, Meanwhile meanwhile) {
    for (int step = 0; step < steps; ++step) {
        const auto& stage = reader.next();
        multiply_stage(
            reinterpret_cast<float (&)[1][N]>(final_accum), stage.x + of_tile, stage.w, step > 0);
        wgmma_wait<1>();  // the previous step is complete
        if (step > 0) reader.release();
    }
    meanwhile();
    wgmma_wait<0>();
    reader.release();
}

// What the epilogue needs: bias, and scales unless the mainloop has applied them. A thread loads
// those of its rows and of one column before the mainloop, and shares the latter during the last
// products.
template <class Plan>
struct EpilogueOperands {
    struct OfColumns {
        float scales[Plan::kColumns], biases[Plan::kColumns];
    };
    float of_row[Plan::kMBlocks][2], scale, bias;

    // first: the first block of 64 rows of the warpgroup.
    template <class T>
    __device__ void fetch(const Float8Product<T>& p, TileCorner tile, int first) {
        for (int n = 0; n < Plan::kMBlocks; ++n) {
            for (int i = 0; i < 2; ++i) {
                const int64_t row = row_there(p, tile, first + n, 2 * i);
                of_row[n][i] = Plan::kByBlock ? 1 : scale_at(p.x_scale, row, 0);
            }
        }
        const int64_t unit = tile.column + threadIdx.x % kWarpgroup;
        const int64_t there = smaller(unit, p.units - 1);
        scale = Plan::kByBlock ? 1 : scale_at(p.w_scale, there, 0);
        bias = p.bias ? float(p.bias[there]) : 0;
    }

    // buffers: of the warpgroup, all of whose threads must call this.
    __device__ void share(EpilogueBuffers& buffers, int group) const {
        const int thread = threadIdx.x % kWarpgroup;
        if (thread == 0) tma_store_wait_read<0>();  // the buffer is free
        warpgroup_barrier(group);
        OfColumns& columns = of_columns(buffers);
        if (thread < Plan::kColumns) {
            columns.scales[thread] = scale;
            columns.biases[thread] = bias;
        }
        warpgroup_barrier(group);
    }

    template <int N>
    __device__ void apply(float (&final_accum)[N], int m_block, EpilogueBuffers& buffers,
                          bool adds_bias) const {
        const OfColumns& columns = of_columns(buffers);
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const auto two = load<2>(columns.scales + accum_column(i));
            final_accum[i] = final_accum[i] * of_row[m_block][i / 2 % 2] * two[0];
            final_accum[i + 1] = final_accum[i + 1] * of_row[m_block][i / 2 % 2] * two[1];
        }
        if (!adds_bias) return;
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const auto two = load<2>(columns.biases + accum_column(i));
            final_accum[i] += two[0];
            final_accum[i + 1] += two[1];
        }
    }

  private:
    __device__ static OfColumns& of_columns(EpilogueBuffers& buffers) {
        return *reinterpret_cast<OfColumns*>(buffers.chunks[0]);
    }
};

// The epilogue where TMA cannot store: one element after the other.
template <class T, int N>
__device__ void epilogue_direct(const float (&final_accum)[N], const Float8Product<T>& p,
                                int64_t row, int64_t unit) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int64_t r = row + accum_row(i), u = unit + accum_column(i);
        if (r < p.rows && u < p.units) p.y[r * p.units + u] = T(final_accum[i]);
    }
}

#endif

// stores: whether TMA stores y.
template <class T, class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    matmul_fp8_wgmma(const __grid_constant__ Maps maps, Float8Product<T> p, TileScheduler scheduler,
                     bool stores) {
#if HAS_WGMMA
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const Pair<Plan::kPair> pair;
    const int steps = int(ceil_div<int64_t>(p.depth, kScaleBlock));
    const int group = warpgroup_number();
    const int thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) init_pipeline(shared, kConsumers * Plan::kPair);
    pair.begin();

    const auto corner_of = [&](int n) {
        TilePlace place;
        scheduler.at(smaller(n, scheduler.places() - 1), pair.rank, place);
        return TileCorner{int(place.row) * kTileRows, int(place.column) * Plan::kColumns};
    };
    if (group == kConsumers) {
        warpgroup_reg_dealloc<40>();
        PipelineState<Plan::kStages> pipe;
        TileCorner next_corner = corner_of(pair.index);
        for (int n = pair.index; thread == 0 && n < scheduler.places(); n += pair.count) {
            const TileCorner corner = next_corner;
            next_corner = corner_of(n + pair.count);
            for (int step = 0; step < steps; ++step, pipe.next()) {
                auto& stage = shared.stages[pipe.stage];
                Mbarrier& full = shared.full[pipe.stage];
                shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
                shared.corners[pipe.stage] = next_corner;
                full.arrive_expect_tx(sizeof(stage));
                const int k = step * kScaleBlock;
                tma_load(stage.x, maps.x, k, corner.row, 0, full);
                pair.template fetch<Plan::kColumns>(stage.w, maps.w, k, corner.column, full);
            }
        }
    } else {
        warpgroup_reg_alloc<232>();
        StageReader<Plan> reader = {shared, pair};
        const int of_tile = group * 64 * kScaleBlock;
        EpilogueBuffers& buffers = shared.epilogue[group];
        int stored = 0, left = ceil_div(scheduler.places() - pair.index, pair.count);
        // This tile, the next one and the one after that, whose stages need not be full yet.
        TileCorner corner, next_corner = corner_of(pair.index);
        TileCorner after_next = corner_of(pair.index + pair.count);
        EpilogueOperands<Plan> operands, next_operands;
        next_operands.fetch(p, next_corner, group);
        TileScales<T, Plan::kByBlock> scales(p, next_corner, group, steps);
        for (; left > 0; --left) {
            corner = next_corner;
            next_corner = after_next;
            operands = next_operands;
            scales.set_next(next_corner);
            const auto meanwhile = [&] {
                if (!Plan::kByBlock || p.bias) operands.share(buffers, group);
                if (left == 1) return;
                after_next = reader.corner();
                next_operands.fetch(p, next_corner, group);
            };
            float final_accum[Plan::kColumns / 2];
            if constexpr (Plan::kFast) {
                add_up_fast(final_accum, reader, of_tile, steps, meanwhile);
            } else {
                add_up(final_accum, reader, scales, of_tile, steps, meanwhile);
            }
            if (!Plan::kByBlock || p.bias) operands.apply(final_accum, 0, buffers, p.bias);
            const int row = corner.row + group * 64;
            if (stores) {
                epilogue_tma<T>(
                    final_accum, 1.f, buffers, maps.y, 0, row, corner.column, group, stored);
            } else {
                epilogue_direct(final_accum, p, row, corner.column);
            }
        }
        if (stores && thread == 0) tma_store_wait();
    }
    pair.end();
#endif
}

// False if TMA cannot read x and w. stores: whether it can store y.
template <class Plan, class T>
bool make_fp8_maps(Maps& maps, bool& stores, const Float8Product<T>& p) {
    const int64_t most = 0x7fffffff - Plan::kColumns;  // TMA has 32-bit coordinates
    const auto map = [&](CUtensorMap& to, const auto* data, int64_t rows, int64_t cols,
                         int64_t stride, int high) {
        return make_tensor_map(to, data, 1, rows, cols, 0, stride, high);
    };
    if (p.depth == 0 || p.rows > most || p.units > most || p.depth > most) return false;
    stores =
        is_aligned(p.y) && p.units % kVec<T> == 0 && map(maps.y, p.y, p.rows, p.units, p.units, 64);
    return reads_in_vectors(p.x) && reads_in_vectors(p.w) &&
           map(maps.x, p.x.data, p.rows, p.depth, p.x.row, kTileRows) &&
           map(maps.w, p.w.data, p.units, p.depth, p.w.row, Plan::kBox);
}

// Launches a kernel with this plan. False if this GPU or the layout of x and w does not allow it.
template <class Plan, class T>
bool launch_fp8_plan(void (*kernel)(Maps, Float8Product<T>, TileScheduler, bool),
                     const Float8Product<T>& p, cudaStream_t stream) {
    Maps maps;
    bool stores;
    if (!has_wgmma(kernel, Plan::kThreads) || Plan::kBytes > shared_bytes() ||
        !make_fp8_maps<Plan>(maps, stores, p))
        return false;
    const TileGrid grid(1, p.rows, p.units, kTileRows, Plan::kColumns);
    if (grid.tiles() > 0x3fffffff) return false;  // indices are 32-bit
    const TileScheduler scheduler(grid, Plan::kPair, 16 / Plan::kPair);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const int pairs = smaller(scheduler.places(), multiprocessors() / Plan::kPair);
    launch_clusters(kernel, Plan::kPair, unsigned(pairs * Plan::kPair), Plan::kThreads,
                    Plan::kBytes, stream, maps, p, scheduler, stores);
    return true;
}

template <class Plan, class T>
bool launch_fp8_tiles(const Float8Product<T>& p, cudaStream_t stream) {
    return launch_fp8_plan<Plan>(matmul_fp8_wgmma<T, Plan>, p, stream);
}
