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

// by_block: scales differ along k. fast: tensor cores alone add up the sums, over all of k.
template <int columns, bool by_block, bool fast>
struct Float8Plan {
    static_assert(columns <= 128 && !(fast && by_block));
    static constexpr bool kByBlock = by_block, kFast = fast;
    static constexpr int kColumns = columns, kPair = 1;  // blocks of a cluster
    static constexpr int kStages = columns == 128 ? 6 : 8;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    static constexpr int kBox = columns;  // rows of w that TMA loads at once
    static constexpr int kParts = 1;      // of 64 rows, that a warpgroup has
    struct Stage {
        Float8 x[kTileRows * kScaleBlock], w[columns * kScaleBlock];
    };
    struct Shared : StagesAndBoxes<Stage, kStages> {
        TileCorner corners[kStages];  // of the tile after the one that begins with a stage
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

#if HAS_WGMMA

// Begins the sums over a stage, of parts of 64 rows of x; or if `adds`, adds them to others.
template <int parts, int N>
__device__ void multiply_stage(float (&sums)[parts][N], const Float8* x, const Float8* w,
                               bool adds = false) {
    constexpr int kPart = 64 * kScaleBlock >> 4;  // as descriptors count
    const uint64_t of_x = wgmma_descriptor(x), of_w = wgmma_descriptor(w);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kScaleBlock / 32; ++k) {
#pragma unroll
        for (int i = 0; i < parts; ++i)
            wgmma_float8(sums[i], of_x + i * kPart + k * 2, of_w + k * 2, adds || k > 0);
    }
    wgmma_commit();
}

// The row of x of a warpgroup's sum i, or the last one there is.
template <class T>
__device__ int64_t row_there(const Float8Product<T>& p, TileCorner tile, int group, int i) {
    return smaller<int64_t>(tile.row + group * 64 + row_of_sum(i), p.rows - 1);
}

constexpr int kScalesAtOnce = 8;  // steps

// What the sums over each step of a tile are multiplied by, if that differs along k: a thread's two
// scales of x, times that of w, which all have in common. Whatever a step did for that would keep
// its products waiting: so scales are asked for eight steps at a time, when the eight before begin,
// those of w 32 at a time, and a tile's first ones during the last steps of the tile before. Each
// of the four lanes that share rows has two of eight steps, and a step costs two shuffles.
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
    // Where the tile is that follows: called before each tile's steps.
    __device__ void set_next(TileCorner tile) { next_tile_ = tile; }

    // Before `take` for this step, the first of kScalesAtOnce.
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

// The stages that a warpgroup multiplies, one after the other.
template <class Plan>
struct StageReader {
    typename Plan::Shared& shared;
    Pair<Plan::kPair> pair;
    Ring<Plan::kStages> ring, read;  // the stage that comes next; that is read next

    // Where the tile is that follows the one which begins with the next stage.
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
        pair.is_read(shared.empty[read.stage], threadIdx.x % kWarpgroup);
        read.next();
    }
};

// The totals over all k, by two sets of sums: the products of a step go on while those of the step
// before are added up. What the sums are multiplied by is taken a step ahead, before additions that
// do not need it: who took it when they do would add, and begin the next products, later.
// meanwhile(): called while the last products go on.
template <class Plan, int N, class Scales, class Meanwhile>
__device__ void add_up(float (&totals)[N], StageReader<Plan>& reader, Scales& scales, int of_tile,
                       int steps, Meanwhile meanwhile) {
    float even[1][N], odd[1][N], of_even[2], of_odd[2];
    const auto begin = [&](float (&sums)[1][N]) {
        const auto& stage = reader.next();
        multiply_stage(sums, stage.x + of_tile, stage.w);
    };
    const auto add = [&](const float (&sums)[1][N], const float (&by)[2]) {
        reader.done();
#pragma unroll
        for (int i = 0; i < N; ++i) totals[i] += sums[0][i] * by[i / 2 % 2];
    };
    for (float& total : totals) total = 0;
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

// The same by tensor cores alone.
template <class Plan, int N, class Meanwhile>
__device__ void add_up_fast(float (&totals)[N], StageReader<Plan>& reader, int of_tile, int steps,
                            Meanwhile meanwhile) {
    for (int step = 0; step < steps; ++step) {
        const auto& stage = reader.next();
        multiply_stage(
            reinterpret_cast<float (&)[1][N]>(totals), stage.x + of_tile, stage.w, step > 0);
        wgmma_wait<1>();  // the products of the step before are done
        if (step > 0) reader.done();
    }
    meanwhile();
    wgmma_wait<0>();
    reader.done();
}

// What makes elements of y of the totals: bias, and scales unless they are in the totals already. A
// thread asks for that of its rows, and of a column, before the sums, and shares it while the last
// products go on.
template <class Plan>
struct TileEnd {
    struct OfColumns {
        float scales[Plan::kColumns], biases[Plan::kColumns];
    };
    float of_row[Plan::kParts][2], scale, bias;

    // first: part of the tile that the warpgroup has.
    template <class T>
    __device__ void ask(const Float8Product<T>& p, TileCorner tile, int first) {
        for (int n = 0; n < Plan::kParts; ++n) {
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

    // memory: of the warpgroup, which waits until all have come here.
    __device__ void share(Boxes& memory, int group) const {
        const int thread = threadIdx.x % kWarpgroup;
        if (thread == 0) tma_store_wait_read<0>();  // what the box held before is stored
        warpgroup_barrier(group);
        OfColumns& columns = of_columns(memory);
        if (thread < Plan::kColumns) {
            columns.scales[thread] = scale;
            columns.biases[thread] = bias;
        }
        warpgroup_barrier(group);
    }

    template <int N>
    __device__ void finish(float (&totals)[N], int part, Boxes& memory, bool adds_bias) const {
        const OfColumns& columns = of_columns(memory);
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const auto two = load<2>(columns.scales + column_of_sum(i));
            totals[i] = totals[i] * of_row[part][i / 2 % 2] * two[0];
            totals[i + 1] = totals[i + 1] * of_row[part][i / 2 % 2] * two[1];
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
    const Pair<Plan::kPair> pair;
    const int steps = int(ceil_div<int64_t>(p.depth, kScaleBlock));
    // The shuffle tells the compiler that it is the same in a warp: else it keeps descriptors in
    // each thread's registers, and moves them from there between products.
    const int group = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
    const int thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) init_stages(shared, kConsumers * Plan::kPair);
    pair.begin();

    const auto corner_of = [&](int n) {
        TilePlace place;
        order.at(smaller(n, order.places() - 1), pair.rank, place);
        return TileCorner{int(place.row) * kTileRows, int(place.column) * Plan::kColumns};
    };
    if (group == kConsumers) {
        give_registers<40>();
        Ring<Plan::kStages> ring;
        TileCorner next_corner = corner_of(pair.index);
        for (int n = pair.index; thread == 0 && n < order.places(); n += pair.count) {
            const TileCorner corner = next_corner;
            next_corner = corner_of(n + pair.count);
            for (int step = 0; step < steps; ++step, ring.next()) {
                auto& stage = shared.stages[ring.stage];
                Mbarrier& full = shared.full[ring.stage];
                shared.empty[ring.stage].wait((ring.round + 1) % 2);
                shared.corners[ring.stage] = next_corner;
                full.arrive_expect_tx(sizeof(stage));
                const int k = step * kScaleBlock;
                tma_load(stage.x, maps.x, k, corner.row, 0, full);
                pair.template fetch<Plan::kColumns>(stage.w, maps.w, k, corner.column, full);
            }
        }
    } else {
        take_registers<232>();
        StageReader<Plan> reader = {shared, pair};
        const int of_tile = group * 64 * kScaleBlock;
        Boxes& boxes = shared.boxes[group];
        int stored = 0, left = ceil_div(order.places() - pair.index, pair.count);
        // Of the tile, the next one and the one after that, of which no stage has to be there yet.
        TileCorner corner, next_corner = corner_of(pair.index);
        TileCorner after_next = corner_of(pair.index + pair.count);
        TileEnd<Plan> end, next_end;
        next_end.ask(p, next_corner, group);
        TileScales<T, Plan::kByBlock> scales(p, next_corner, group, steps);
        for (; left > 0; --left) {
            corner = next_corner;
            next_corner = after_next;
            end = next_end;
            scales.set_next(next_corner);
            const auto meanwhile = [&] {
                if (!Plan::kByBlock || p.bias) end.share(boxes, group);
                if (left == 1) return;
                after_next = reader.corner();
                next_end.ask(p, next_corner, group);
            };
            float totals[Plan::kColumns / 2];
            if constexpr (Plan::kFast) {
                add_up_fast(totals, reader, of_tile, steps, meanwhile);
            } else {
                add_up(totals, reader, scales, of_tile, steps, meanwhile);
            }
            if (!Plan::kByBlock || p.bias) end.finish(totals, 0, boxes, p.bias);
            const int row = corner.row + group * 64;
            if (stores) {
                store_scaled<T>(totals, 1.f, boxes, maps.y, 0, row, corner.column, group, stored);
            } else {
                store_each(totals, p, row, corner.column);
            }
        }
        if (stores && thread == 0) tma_store_wait();
    }
    pair.end();
#endif
}

// False: how x and w lie in memory is not for TMA. stores: whether how y lies is.
template <class Plan, class T>
bool make_fp8_maps(Maps& maps, bool& stores, const Float8Product<T>& p) {
    const int64_t most = 0x7fffffff - Plan::kColumns;  // TMA counts in 32 bits
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

// A kernel of tiles of that plan. False: this GPU, or how x and w lie in memory, is not for it.
template <class Plan, class T>
bool launch_fp8_plan(void (*kernel)(Maps, Float8Product<T>, TileOrder, bool),
                     const Float8Product<T>& p, cudaStream_t stream) {
    Maps maps;
    bool stores;
    if (!has_wgmma(kernel, Plan::kThreads) || Plan::kBytes > shared_bytes() ||
        !make_fp8_maps<Plan>(maps, stores, p))
        return false;
    const TileGrid grid(1, p.rows, p.units, kTileRows, Plan::kColumns);
    if (grid.tiles() > 0x3fffffff) return false;  // which are counted in 32 bits
    const TileOrder order(grid, Plan::kPair, 16 / Plan::kPair);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const int pairs = smaller(order.places(), multiprocessors() / Plan::kPair);
    launch_clusters(kernel, Plan::kPair, unsigned(pairs * Plan::kPair), Plan::kThreads,
                    Plan::kBytes, stream, maps, p, order, stores);
    return true;
}

template <class Plan, class T>
bool launch_fp8_tiles(const Float8Product<T>& p, cudaStream_t stream) {
    return launch_fp8_plan<Plan>(matmul_fp8_wgmma<T, Plan>, p, stream);
}
