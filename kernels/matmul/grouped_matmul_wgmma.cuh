// The wgmma version of grouped_matmul, for 16-bit floats on GPUs of compute capability 9.0: the
// pipeline, the products and the epilogue are those of matmul (matmul_pipeline.cuh).
#pragma once

#include "grouped_matmul_groups.cuh"
#include "matmul_wgmma_launch.cuh"

// ---- wgmma: blocks are persistent, and a producer warpgroup finds their tiles: it walks through
// the groups, as far as its next tile is. A tile of the last rows of a group lies over rows of the
// next one. Where the depth is grouped, consumers replace those by zeros. Where the rows of x are
// grouped, they are multiplied for nothing, and not stored.
//
// TMA ends its stores at a tensor's end alone. In a ragged map any row is an end: its dimensions
// are columns, 64 lines, and rows, and from line to line it is as far as from row to row. Of a box
// that begins at line 64 - n of row r + n - 64, the n lines from the matrix's row r on are inside.
// The first rows of all, where r + n < 64, are stored by threads. Flaw: a group of few rows
// multiplies a tile of 128.

constexpr int kRaggedLines = 64;

// The box for the `left` rows from `row` on, of which 64 at most; none if left is not positive.
struct RaggedBox {
    int line, row;
    __device__ RaggedBox(int64_t first, int64_t left) {
        const int inside = int(left < 0 ? 0 : smaller<int64_t>(left, kRaggedLines));
        line = kRaggedLines - inside;
        row = int(first) - line;
    }
    // Whether the map has it.
    __device__ bool there() const { return row >= 0 || line == kRaggedLines; }
};

template <class T>
bool make_ragged_map(CUtensorMap& map, const T* at, int64_t rows, int64_t cols, int64_t stride,
                     int box_rows) {
    const int64_t places = rows < kRaggedLines ? 1 : rows - kRaggedLines + 1;
    return make_tensor_map<T, 3>(map, at, {cols, kRaggedLines, places}, {stride, stride}, box_rows);
}

// The halves of z have a ragged map each.
struct GroupedMaps : Maps {
    CUtensorMap right;
    __device__ const CUtensorMap& of_z(int half) const { return half ? right : z; }
    __device__ static BoxAt box_of_z(int, const BoxAt& y) { return y; }
};

// No product here has a bias or a residual.
template <class T>
struct NoResidual {
    __device__ const T* wait_for(int) const { return nullptr; }
    __device__ void release(int, bool) {}
};

struct GroupedTile {
    int steps;                   // of k; 0: there are no more tiles
    int64_t group, row, column;  // row: of the group's; column: of tiles
    int64_t begin, end;          // of the group's rows, among all
};

template <class T, int columns, bool fused = false>
struct GroupedPlan : Plan<T, columns, 1, true, 1, fused> {
    using Base = Plan<T, columns, 1, true, 1, fused>;
    struct Shared {
        Stage<T, columns> stages[Base::kStages];
        EpilogueBuffers epilogue[kConsumers];
        Mbarrier full[Base::kStages], empty[Base::kStages];
        uint32_t bias[columns / 2];        // zeros
        GroupedTile tiles[Base::kStages];  // the tile that a stage belongs to
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

#if HAS_WGMMA

// Zeroes the lines of each box of a stage from line `first` on: 0 * Inf would be NaN. All consumers
// call this.
template <class Stage>
__device__ void clear_lines(Stage& stage, int first) {
    constexpr int kPieces = kTileRow / kVecBytes, kBoxes = sizeof(Stage) / kBox;
    const int lines = kBox / kTileRow - first;
    for (int i = threadIdx.x; i < kBoxes * lines * kPieces; i += kConsumers * kWarpgroup) {
        const int box = i / kPieces / lines, line = first + i / kPieces % lines;
        char* const to = reinterpret_cast<char*>(&stage) + box * kBox + line * kTileRow;
        const uint32_t zeros[4] = {};
        store(reinterpret_cast<uint32_t*>(to + i % kPieces * kVecBytes), zeros);
    }
    tma_writes_done();  // tensor cores read them, too
    asm volatile("bar.sync 3, 256;" ::: "memory");
}

// Finds the tiles of one block, whose numbers increase.
template <Grouped grouped>
struct GroupWalk {
    const Groups groups;
    const int64_t rows;     // of y in each group, where the depth is grouped
    const int64_t columns;  // tiles across
    const int64_t count = count_of(groups);
    int64_t group = -1, begin = 0, end = 0;
    int64_t first = 0, down = 0;  // the group's first tile, and how many are below one another

    // False if there is no tile n.
    __device__ bool find(int64_t n, GroupedTile& tile) {
        while (n >= first + down * columns) {
            if (++group >= count) return false;
            first += down * columns;
            begin = end, end = groups.ends[group];
            down = ceil_div<int64_t>(grouped == Grouped::kRows ? end - begin : rows, kTileRows);
        }
        // As TileScheduler: tiles that run at the same time form a square.
        const int64_t i = n - first, top = i / (kGroupRows * columns) * kGroupRows;
        const int64_t height = smaller<int64_t>(down - top, kGroupRows), within = i - top * columns;
        tile.group = group, tile.begin = begin, tile.end = end;
        tile.row = (top + within % height) * kTileRows;
        tile.column = within / height;
        return true;
    }
};

#endif

template <Grouped grouped, class T, class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    grouped_matmul_wgmma(const __grid_constant__ GroupedMaps maps, Product<T> p, Groups groups,
                         int64_t columns) {
#if HAS_WGMMA
    constexpr int kStages = Plan::kStages, kColumns = Plan::kColumns;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const int group = warpgroup_number(), thread = threadIdx.x % kWarpgroup;
    launch_dependents();
    if (threadIdx.x == 0) init_pipeline(shared, kConsumers);
    if (Plan::kFused && threadIdx.x < kColumns / 2) shared.bias[threadIdx.x] = 0;
    __syncthreads();
    grid_dependency_wait();

    PipelineState<kStages> pipe;
    if (group == kConsumers) {
        warpgroup_reg_dealloc<40>();
        if (thread != 0) return;
        GroupWalk<grouped> walk = {groups, p.rows, columns};
        GroupedTile tile;
        for (int64_t n = blockIdx.x; walk.find(n, tile); n += gridDim.x) {
            const int64_t depth = grouped == Grouped::kRows ? p.depth : tile.end - tile.begin;
            // A group without rows has a step, too, of zeros.
            const auto columns_of = TileRows<kColumns>::of_w(p, tile.column);
            tile.steps = depth == 0 ? 1 : int(ceil_div<int64_t>(depth, kTileDepth));
            for (int step = 0; step < tile.steps; ++step, pipe.next()) {
                auto& stage = shared.stages[pipe.stage];
                Mbarrier& full = shared.full[pipe.stage];
                shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
                shared.tiles[pipe.stage] = tile;
                full.arrive_expect_tx(sizeof(stage));
                if (grouped == Grouped::kRows) {
                    for (int half = 0; half < 2; ++half) {
                        fetch_half<kTileRows>(
                            stage.x, half, maps.x, true,
                            tile.begin + tile.row + half * (kTileRows / 2), step, 0, full, 0);
                        fetch_half<kColumns>(stage.w, half, maps.w, p.w.col == 1,
                                             columns_of.first[half], step, tile.group, full, 0);
                    }
                } else {
                    const int line = int(tile.begin) + step * kTileDepth;
                    for (int r = 0; r < kTileRows; r += 64)
                        tma_load(
                            stage.x + r * kTileDepth, maps.x, int(tile.row) + r, line, 0, full);
                    for (int r = 0; r < kColumns; r += 64)
                        tma_load(stage.w + r * kTileDepth, maps.w, int(tile.column) * kColumns + r,
                                 line, 0, full);
                }
            }
        }
        shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
        shared.tiles[pipe.stage].steps = 0;
        shared.full[pipe.stage].arrive();
        return;
    }
    warpgroup_reg_alloc<232>();
    EpilogueBuffers& buffers = shared.epilogue[group];
    int stored = 0;
    const auto release = [&](int stage) {
        if (thread == 0) shared.empty[stage].arrive();
    };
    while (true) {
        shared.full[pipe.stage].wait(pipe.phase % 2);
        const GroupedTile tile = shared.tiles[pipe.stage];
        if (tile.steps == 0) break;
        float accum[1][kColumns / 2];
        int before = 0;
        for (int step = 0; step < tile.steps; ++step, pipe.next()) {
            auto& stage = shared.stages[pipe.stage];
            shared.full[pipe.stage].wait(pipe.phase % 2);
            if (grouped == Grouped::kDepth) {
                const int64_t left = tile.end - tile.begin - step * kTileDepth;
                if (left < kTileDepth) clear_lines(stage, int(left));
            }
            multiply(accum, p, stage.x + group * 64 * kTileDepth, stage.w, step > 0);
            wgmma_wait<1>();  // the previous step is complete
            if (step > 0) release(before);
            before = pipe.stage;
        }
        wgmma_wait<0>();
        release(before);
        const int64_t row = tile.row + group * 64;
        const int unit = int(tile.column) * (kColumns / rows_per_unit(p));
        int line = int(row), matrix = int(tile.group);
        if constexpr (grouped == Grouped::kRows) {
            const RaggedBox box(tile.begin + row, tile.end - tile.begin - row);
            line = box.line, matrix = box.row;
            if (!box.there()) {
                if (threadIdx.x % kWarp == 0) tma_store_wait_read<0>();  // the buffers are free
                epilogue(accum[0], product_of_group<grouped>(p, groups, tile.group), buffers, 0,
                         int(row), unit, group);
                warpgroup_barrier(group);
                continue;
            }
        }
        if constexpr (Plan::kFused) {
            NoResidual<T> none;
            epilogue_fused(
                accum[0], p, shared.bias, none, maps, buffers, matrix, line, unit, stored);
        } else {
            epilogue_tma<T>(accum[0], p.scale, buffers, maps.y, matrix, line, unit, group, stored);
        }
    }
    wait_for_stores();
#endif
}

// ---- launches

template <Grouped grouped, class T>
bool make_grouped_maps(GroupedMaps& maps, const Product<T>& p, int columns, bool fused) {
    const int64_t most = 0x3fffffff;  // TMA has 32-bit coordinates
    const int64_t wide = p.units * rows_per_unit(p);
    if (p.rows > most || p.units > most || p.depth > most || p.batch > most || p.depth == 0 ||
        p.units % kVec<T> != 0 || !is_aligned(p.y, p.z) || !reads_in_vectors(p.x) ||
        !reads_in_vectors(p.w))
        return false;
    if (grouped == Grouped::kDepth) {
        return make_tensor_map(maps.x, p.x.data, 1, p.depth, p.rows, 0, p.x.col, 64) &&
               make_tensor_map(maps.w, p.w.data, 1, p.depth, p.units, 0, p.w.col, 64) &&
               make_tensor_map(
                   maps.y, p.y, p.batch, p.rows, p.units, p.rows * p.units, p.units, 64);
    }
    return make_tensor_map(maps.x, p.x.data, 1, p.rows, p.depth, 0, p.x.row, kTileRows / 2) &&
           make_map(maps.w, p, p.w, wide, columns / 2) &&
           make_ragged_map(maps.y, p.y, p.rows, p.units, p.units, fused ? kWarpRows : 64) &&
           (!p.z || make_ragged_map(maps.z, p.z, p.rows, p.units, wide, kWarpRows)) &&
           (!p.z || wide == p.units ||
            make_ragged_map(maps.right, p.z + p.units, p.rows, p.units, wide, kWarpRows));
}

// How many tiles are below one another in all groups, about: half of each group's last one is
// empty.
template <Grouped grouped, class T>
int64_t rows_of_tiles(const Product<T>& p) {
    if (grouped == Grouped::kDepth) return p.batch * ceil_div<int64_t>(p.rows, kTileRows);
    const int64_t tiles = p.rows / kTileRows + p.batch / 2, least = smaller(p.rows, p.batch);
    return tiles < least ? least : tiles;
}

template <Grouped grouped, class Plan, class T>
bool launch_grouped_plan(const Product<T>& p, const Groups& groups, cudaStream_t stream) {
    const auto kernel = grouped_matmul_wgmma<grouped, T, Plan>;
    GroupedMaps maps;
    if (!has_wgmma(kernel, Plan::kThreads) || Plan::kBytes > shared_bytes() ||
        !make_grouped_maps<grouped>(maps, p, Plan::kColumns, Plan::kFused))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const int64_t columns = ceil_div<int64_t>(p.units * rows_per_unit(p), Plan::kColumns);
    const GroupGrid<grouped> grid(p, kTileRows, Plan::kColumns, groups);
    const unsigned blocks = unsigned(smaller<int64_t>(grid.tiles(), multiprocessors()));
    launch_secondary(
        kernel, 1, blocks, dim3(Plan::kThreads), Plan::kBytes, stream, maps, p, groups, columns);
    return true;
}

// False if this GPU or the layout of x, w and y does not allow it.
template <Grouped grouped, bool fused, class T>
bool launch_grouped_tiles(const Product<T>& p, const Groups& groups, cudaStream_t stream) {
    const auto clocks = [&](int columns) {
        const int64_t wide = p.units * rows_per_unit(p);
        const int64_t tiles = rows_of_tiles<grouped>(p) * ceil_div<int64_t>(wide, columns);
        return clocks_of_tile_step(columns) * double(ceil_div<int64_t>(tiles, multiprocessors()));
    };
    if (clocks(128) < clocks(256))
        return launch_grouped_plan<grouped, GroupedPlan<T, 128, fused>>(p, groups, stream);
    return launch_grouped_plan<grouped, GroupedPlan<T, 256, fused>>(p, groups, stream);
}

template <Grouped grouped, class T>
bool launch_grouped_wgmma(const Product<T>& p, const Groups& groups, cudaStream_t stream) {
    if constexpr (grouped == Grouped::kRows) {
        if (p.act != kNone) return launch_grouped_tiles<grouped, true>(p, groups, stream);
    }
    return launch_grouped_tiles<grouped, false>(p, groups, stream);
}
