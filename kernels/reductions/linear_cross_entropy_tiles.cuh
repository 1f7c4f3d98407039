// linear_cross_entropy: the softmax statistics of logits that never reach memory.
#pragma once

#include "../matmul/matmul_scheduler.cuh"
#include "dependent_launch.cuh"

// ---- tiles: the mainloop is that of matmul's best version, with tiles of 128 rows and 256
// classes. Instead of storing the logits, the epilogue of a warpgroup reduces each of its rows to
// the max and the sum of e^(x - max): 8 bytes for 512. The logits are first rounded to T, as they
// would be in memory.
//
// 64 x 256 exponentials take at least 1024 clocks, a 64th of a tile with 4096 columns. So the
// warpgroups are staggered: one multiplies while the other is in its epilogue.
// Flaw: a bias is read
// from memory during the epilogue.

template <class T>
struct LogitTiles {
    static constexpr int kColumns = 256, kStages = 4, kThreads = (kConsumers + 1) * kWarpgroup;
    static constexpr int kBox = 128;    // rows of w that TMA loads at once
    static constexpr int kStagger = 1;  // steps between the warpgroups
    struct Shared {
        Stage<T, kColumns> stages[kStages];
        TileAt tiles[kStages];  // the tile that a stage belongs to
        Mbarrier full[kStages], empty[kStages];
        Mbarrier ahead;  // the first warpgroup is kStagger steps ahead
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

// The slices of the classes that tiles have.
struct ClassTiles {
    int64_t rows, apart, classes, count;

    ClassTiles(int64_t rows, int64_t classes)
        : rows(rows), apart(rows), classes(classes), count(ceil_div<int64_t>(classes, kColumns)) {}
    __host__ __device__ int64_t first(int64_t tile) const {
        return smaller(tile * kColumns, classes);
    }

    static constexpr int kColumns = 256;
};

// x and w by rows, with the elements from one row to the next. bias may be null.
template <class T>
struct LogitProduct {
    const T *x, *w, *bias;
    int64_t w_row, rows, classes, depth;
};

#if HAS_WGMMA

// The epilogue of one of a thread's two rows, half of its accumulators. first: the first class of
// the tile. bias, target: relative to that.
template <class T, int N>
__device__ void epilogue_row(const float (&accum)[N], int half, const T* bias, int there,
                             int64_t target, bool smooths, bool writes, int64_t at,
                             const Statistics<T>& partials, Acc<T>* hit) {
    constexpr int kPairs = N / 4;
    Vec<T, 8> logits[kPairs / 4];
    const auto column = [](int i) { return accum_column(i / 2 * 4 + i % 2); };
    const auto logit = [&](int i) -> T& { return logits[i / 8][i % 8]; };
#pragma unroll
    for (int i = 0; i < 2 * kPairs; i += 2) {
        float two[] = {accum[i * 2 + half * 2], accum[i * 2 + half * 2 + 1]};
        if (bias != nullptr) {
            for (int k = 0; k < 2; ++k)
                if (column(i + k) < there) two[k] += float(bias[column(i + k)]);
        }
        const uint32_t pair = rounded_pair<T>(two[0], two[1]);
        memcpy(&logit(i), &pair, sizeof(pair));
    }
    if (there < 2 * N) {
#pragma unroll
        for (int i = 0; i < 2 * kPairs; ++i)
            if (column(i) >= there) logit(i) = T(-INFINITY);
    }
    // Few tiles have the target of one of a warp's rows.
    const bool has_target = target >= 0 && target < there;
    if (__any_sync(0xffffffff, has_target)) {
#pragma unroll
        for (int i = 0; i < 2 * kPairs; ++i)
            if (has_target && column(i) == target) *hit = float(logit(i));
    }
    OnlineSoftmax<T> soft = {warp_max(largest(logits), 4), 0};
    soft.add(logits);
    float below = 0;
    if (smooths) {
#pragma unroll
        for (int i = 0; i < 2 * kPairs; ++i)
            if (column(i) < there) below += float(logit(i)) - soft.shift();
    }
    soft.sum = warp_sum(soft.sum, 4);
    below = warp_sum(below, 4);
    if (!writes) return;
    partials.max[at] = soft.max;
    partials.sum[at] = soft.sum;
    partials.below[at] = below;
}

#endif

// partials: the statistics of each row within each tile. hit: the logit of the target of each row,
// if it has one.
template <class T>
__global__ void WGMMA_KERNEL(LogitTiles<T>::kThreads)
    take_tiles(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap w_map,
               LogitProduct<T> p, const int64_t* target, Statistics<T> partials, Acc<T>* hit,
               TileScheduler scheduler, bool smooths) {
#if HAS_WGMMA
    using Tiles = LogitTiles<T>;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Tiles::Shared>(dynamic);
    const int steps = int(ceil_div<int64_t>(p.depth, kTileDepth));
    const int group = warpgroup_number();
    const int thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) {
        init_pipeline(shared, kConsumers);
        shared.ahead.init();
    }
    __syncthreads();

    PipelineState<Tiles::kStages> pipe;
    if (group == kConsumers) {
        warpgroup_reg_dealloc<40>();
        for (int n = blockIdx.x; thread == 0 && n < scheduler.places(); n += gridDim.x) {
            TilePlace place;
            scheduler.at(n, 0, place);
            for (int step = 0; step < steps; ++step, pipe.next()) {
                auto& stage = shared.stages[pipe.stage];
                Mbarrier& full = shared.full[pipe.stage];
                shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
                shared.tiles[pipe.stage] = place;
                full.arrive_expect_tx(sizeof(stage));
                const int k = step * kTileDepth, first = int(place.column) * Tiles::kColumns;
                tma_load(stage.x, x_map, k, int(place.row) * kTileRows, 0, full);
                for (int c = 0; c < Tiles::kColumns; c += Tiles::kBox)
                    tma_load(stage.w + c * kTileDepth, w_map, k, first + c, 0, full);
            }
        }
        return;
    }
    warpgroup_reg_alloc<232>();
    const bool staggered = steps >= Tiles::kStages;  // otherwise one could be a whole tile ahead
    const int of_tile = group * 64;
    for (int n = blockIdx.x, tile = 0; n < scheduler.places(); n += gridDim.x, ++tile) {
        shared.full[pipe.stage].wait(pipe.phase % 2);
        const TileAt place = shared.tiles[pipe.stage];
        const int64_t first = int64_t(place.column) * Tiles::kColumns;
        const int64_t row = int64_t(place.row) * kTileRows + of_tile + accum_row(0);
        int64_t targets[2];
        for (int i = 0; i < 2; ++i)
            targets[i] = row + 8 * i < p.rows ? target[row + 8 * i] - first : -1;
        if (staggered && group > 0) shared.ahead.wait(tile % 2);
        float accum[1][Tiles::kColumns / 2];
        int before = 0;
        for (int step = 0; step < steps; ++step, pipe.next()) {
            const auto& stage = shared.stages[pipe.stage];
            shared.full[pipe.stage].wait(pipe.phase % 2);
            multiply<false, false>(accum, stage.x + of_tile * kTileDepth, stage.w, step > 0);
            wgmma_wait<1>();  // the previous step is complete
            if (step > 0 && thread == 0) shared.empty[before].arrive();
            shared.ahead.arrive_if(staggered && step == Tiles::kStagger && threadIdx.x == 0);
            before = pipe.stage;
        }
        wgmma_wait<0>();
        if (thread == 0) shared.empty[before].arrive();
        const int there = int(smaller<int64_t>(p.classes - first, Tiles::kColumns));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int64_t r = row + 8 * i;
            epilogue_row<T>(
                accum[0], i, p.bias ? p.bias + first : nullptr, there, targets[i], smooths,
                r < p.rows && thread % 4 == 0, place.column * p.rows + r, partials, hit + r);
        }
    }
#endif
}

// Makes the tensor maps; false if this GPU or the layout of x and w does not allow it.
template <class T>
bool make_logit_maps(CUtensorMap& x_map, CUtensorMap& w_map, const LogitProduct<T>& p) {
    using Tiles = LogitTiles<T>;
    const int64_t most = 0x7fffffff - Tiles::kColumns;  // TMA has 32-bit coordinates
    if (p.depth == 0 || p.depth > most || p.rows > most || p.classes > most) return false;
    if (p.depth % kVec<T> != 0 || p.w_row % kVec<T> != 0 || !is_aligned(p.x, p.w)) return false;
    const TileGrid grid(1, p.rows, p.classes, kTileRows, Tiles::kColumns);
    if (grid.tiles() > 0x3fffffff) return false;  // indices are 32-bit
    return has_wgmma(take_tiles<T>, Tiles::kThreads) && Tiles::kBytes <= shared_bytes() &&
           make_tensor_map(x_map, p.x, 1, p.rows, p.depth, 0, p.depth, kTileRows) &&
           make_tensor_map(w_map, p.w, 1, p.classes, p.depth, 0, p.w_row, Tiles::kBox);
}

template <class T>
bool launch_tiles(const LogitProduct<T>& p, const int64_t* target, const Statistics<T>& partials,
                  Acc<T>* hit, bool smooths, cudaStream_t stream) {
    using Tiles = LogitTiles<T>;
    CUtensorMap x_map, w_map;
    if (!make_logit_maps(x_map, w_map, p)) return false;
    const TileGrid grid(1, p.rows, p.classes, kTileRows, Tiles::kColumns);
    const TileScheduler scheduler(grid, 1, 16);
    cudaFuncSetAttribute(take_tiles<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiles::kBytes);
    const int blocks = smaller(scheduler.places(), multiprocessors());
    take_tiles<<<blocks, Tiles::kThreads, Tiles::kBytes, stream>>>(
        x_map, w_map, p, target, partials, hit, scheduler, smooths);
    return true;
}

// ---- launchers

// How many numbers the tiles leave for each row; 0 if this kernel cannot run.
template <class T>
int64_t linear_cross_entropy_tile_numbers(const T* x, const T* w, int64_t w_row, int64_t rows,
                                          int64_t classes, int64_t depth) {
    if constexpr (sizeof(T) == 2) {
        CUtensorMap x_map, w_map;
        const LogitProduct<T> p = {x, w, nullptr, w_row, rows, classes, depth};
        if (make_logit_maps(x_map, w_map, p)) return 3 * ClassTiles(rows, classes).count;
    }
    return 0;
}

template <class T>
cudaError_t linear_cross_entropy_take_tiles(
    const T* x, const T* w, int64_t w_row, const T* bias, const int64_t* target, Acc<T>* numbers,
    Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit, int64_t rows, int64_t classes,
    int64_t depth, bool smooths, cudaStream_t stream) {
    if constexpr (sizeof(T) == 2) {
        const ClassTiles tiles(rows, classes);
        const int64_t each = tiles.count * rows;
        const Statistics<T> parts = {numbers, numbers + each, numbers + 2 * each, nullptr};
        if (launch_tiles(
                {x, w, bias, w_row, rows, classes, depth}, target, parts, hit, smooths, stream)) {
            combine_shares<<<ceil_div<int64_t>(rows, kWarp), dim3(kWarp, kCombiningWarps), 0,
                             stream>>>(parts, static_cast<const T*>(nullptr), target,
                                       Statistics<T>{max, sum, below, hit}, tiles);
            return cudaGetLastError();
        }
    }
    return cudaErrorNotSupported;
}
