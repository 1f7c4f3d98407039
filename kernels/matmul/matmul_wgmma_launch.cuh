// Launches of matmul by wgmma: the tensor maps, and the choice of a kernel and its tiles.
#pragma once

#include "matmul_cost.h"
#include "matmul_wgmma.cuh"

// The tensor map of x or w. rows_of_box: rows of a box where a line is a row.
template <class T>
bool make_map(CUtensorMap& map, const Product<T>& p, const Operand<T>& of, int64_t rows,
              int rows_of_box, CUtensorMapL2promotion promotion = kPromotion) {
    if (!reads_in_vectors(of)) return false;
    return of.col == 1 ? make_tensor_map(map, of.data, p.batch, rows, p.depth, of.matrix, of.row,
                                         rows_of_box, promotion)
                       : make_tensor_map(map, of.data, p.batch, p.depth, rows, of.matrix, of.col,
                                         kTileDepth, promotion);
}

// TMA has 32-bit coordinates and takes no empty tensor.
template <class T>
bool fits_tma(const Product<T>& p) {
    const int64_t most = 0x7fffffff;
    return p.rows <= most && p.units <= most / 2 && 0 < p.depth && p.depth <= most &&
           p.batch <= most;
}

// Whether TMA can store y.
template <class T>
bool can_store(const Product<T>& p) {
    return is_aligned(p.y, p.z, p.bias, p.residual) && p.units % kVec<T> == 0;
}

template <class T>
bool make_maps(Maps& maps, const Product<T>& p, int columns, bool stores, bool fused = false) {
    if (!fits_tma(p) || (p.act == kSwiglu && p.w.col != 1 && p.units % kVec<T> != 0)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, kTileRows / 2) ||
        !make_map(maps.w, p, p.w, p.units * rows_per_unit(p), columns / 2))
        return false;
    if (!stores) return true;
    if (!can_store(p)) return false;
    const int64_t wide = p.units * rows_per_unit(p);
    const auto make_like_y = [&](CUtensorMap& map, const T* at, int rows) {
        return make_tensor_map(map, at, p.batch, p.rows, p.units, p.rows * p.units, p.units, rows);
    };
    return make_like_y(maps.y, p.y, fused ? kWarpRows : 64) &&
           (p.rows % 64 == 0 || make_like_y(maps.edge, p.y, 8)) &&
           (!p.residual || make_like_y(maps.residual, p.residual, 64)) &&
           (!p.z || (p.batch == 1 && make_tensor_map(maps.z, p.z, rows_per_unit(p), p.rows, p.units,
                                                     p.units, wide, kWarpRows)));
}

// Tiles do not move where y is added to, where z is stored in boxes of its own, or for floats
// (matmul_tf32.cuh).
template <class T>
Granules granules_of(const Product<T>& p, bool stores) {
    if (sizeof(T) != 2 || adds_to_y(p) || p.z) return {};
    return {8, p.units % 8 != 0 ? 0 : stores ? 64 : 8};
}

template <class Plan, class T>
bool launch_plan(const Product<T>& p, int group_rows, cudaStream_t stream, SplitK split_k = {}) {
    const auto kernel = matmul_specialized<T, Plan>;
    Maps maps;
    if (!has_wgmma(kernel, Plan::kThreads) || Plan::kBytes > shared_bytes() ||
        multiprocessors() < Plan::kPair ||
        !make_maps(maps, p, Plan::kColumns, Plan::kStores, Plan::kFused))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const TileGrid grid(p, kTileRows, Plan::kColumns);
    if (grid.tiles() > 0x3fffffff) return false;  // indices are 32-bit
    const TileScheduler scheduler(grid, Plan::kPair, group_rows, granules_of(p, Plan::kStores));
    const int work_units = split_k.work_units(scheduler.places());
    const int pairs = smaller(work_units, multiprocessors() / Plan::kPair);
    launch_secondary(kernel, Plan::kPair, unsigned(pairs * Plan::kPair), dim3(Plan::kThreads),
                     Plan::kBytes, stream, maps, p, scheduler, split_k, work_units);
    return true;
}

template <class T>
bool launch_plain(const Product<T>& p, cudaStream_t stream) {
    using Tile = PlainTile<T>;
    Maps maps;
    if (!has_wgmma(matmul_wgmma<T>, Tile::kThreads) || !make_maps(maps, p, Tile::kColumns, false))
        return false;
    cudaFuncSetAttribute(
        matmul_wgmma<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kBytes);
    const TileGrid grid(p, kTileRows, Tile::kColumns);
    matmul_wgmma<<<grid.tiles(), Tile::kThreads, Tile::kBytes, stream>>>(maps, p, grid);
    return true;
}

template <class T>
bool has_tiles(const Product<T>& p, int columns) {
    if (sizeof(T) == 4) return columns % 128 == 0;
    if (columns == 64) return p.act != kSwiglu;  // each half would be half a box
    if (columns % 64 != 0 && can_store(p) && (p.z || p.residual)) return false;
    return columns % 128 == 0 || (p.act != kSwiglu && p.w.col == 1);
}

// The time of all waves of tiles of this width. Narrower tiles keep more multiprocessors busy.
template <class T>
double clocks_of_tiles(const Product<T>& p, int columns) {
    const int64_t tiles = TileGrid(p, kTileRows, columns).tiles();
    const int64_t steps = ceil_div<int64_t>(p.depth, kTileRow / sizeof(T));
    const bool by_tma = columns % 64 == 0 || can_store(p);
    return clocks_of_tile(columns, steps, by_tma) *
           double(ceil_div<int64_t>(tiles, multiprocessors()));
}

// Whether tiles of 128 columns are faster than those of 256.
template <class T>
bool is_for_narrow_tiles(const Product<T>& p) {
    return clocks_of_tiles(p, 128) < clocks_of_tiles(p, 256);
}

// Launches whole tiles of this width.
template <int columns, bool fused, class T>
bool launch_tiles(const Product<T>& p, int group_rows, cudaStream_t stream) {
    if constexpr (columns % 64 != 0) {
        if (!can_store(p)) return launch_plan<Plan<T, columns, 1, false>>(p, group_rows, stream);
    }
    return launch_plan<Plan<T, columns, 1, true, 1, fused>>(p, group_rows, stream);
}

// Launches whole tiles of the fastest width; the wider one if two are equally fast.
template <bool fused, class T>
bool launch_best_tiles(const Product<T>& p, int group_rows, cudaStream_t stream) {
    int best = 256;
    for (int columns : kColumnsOfTiles)
        if (has_tiles(p, columns) && clocks_of_tiles(p, columns) < clocks_of_tiles(p, best))
            best = columns;
    if (best == 64) return launch_tiles<64, fused>(p, group_rows, stream);
    if (best == 96) return launch_tiles<96, fused>(p, group_rows, stream);
    if (best == 128) return launch_tiles<128, fused>(p, group_rows, stream);
    if (best == 160) return launch_tiles<160, fused>(p, group_rows, stream);
    if (best == 192) return launch_tiles<192, fused>(p, group_rows, stream);
    if (best == 224) return launch_tiles<224, fused>(p, group_rows, stream);
    return launch_tiles<256, fused>(p, group_rows, stream);
}

// For K <= 1536, ping-pong accumulation into y is 4 to 8% faster; for K = 2048 it is up to 8%
// slower. Measured on an H200.
template <class T>
bool prefers_ping_pong(const Product<T>& p) {
    const int64_t tiles = TileGrid(p, kTileRows, 128).tiles();
    return adds_to_y(p) && p.depth <= 1536 && tiles >= 4 * multiprocessors();
}

// Version 0 is wgmma. False if none of the versions fits this GPU or the layout of x and w.
template <class T>
bool launch_wgmma(const Product<T>& p, int64_t version, cudaStream_t stream) {
    enum { kPlain, kSpecialized, kCluster, kStores };
    if (version >= kStores) {
        if (is_plain(p)) {
            if (prefers_ping_pong(p) &&
                launch_plan<Plan<T, 128, 1, true, 2>>(p, kGroupRows, stream))
                return true;
            if (launch_best_tiles<false>(p, kGroupRows, stream)) return true;
        } else {
            if (launch_best_tiles<true>(p, kGroupRows, stream)) return true;
            if (launch_plan<Plan<T, 128, 1, false, 2>>(p, kGroupRows, stream)) return true;
        }
    }
    if (version >= kCluster && launch_plan<Plan<T, 256, 2, false>>(p, 1, stream)) return true;
    if (version >= kSpecialized && launch_plan<Plan<T, 256, 1, false>>(p, 1, stream)) return true;
    return launch_plain(p, stream);
}
