// linear_cross_entropy: what the loss needs of the logits, of which none gets to memory.
#pragma once

#include "matmul_wgmma.cuh"

// ---- tiles: the logits of 128 rows and 256 classes are multiplied as in matmul's best version.
// Where that would store them, a warpgroup takes of each of its rows the max, and the sum of e^x
// less it: 8 bytes for 512. The logits are rounded to T before, as they would be in memory.
//
// To take 64 x 256 powers lasts 1024 clocks at least, a 64th of a tile of 4096 columns; so one
// warpgroup stays behind the other, and multiplies meanwhile.
// Flaw: a bias is read from memory while a warpgroup does nothing else.

template <class T>
struct LogitTiles {
    static constexpr int kColumns = 256, kStages = 4, kThreads = (kConsumers + 1) * kWarpgroup;
    static constexpr int kBox = 128;  // rows of w that TMA loads at once
    static constexpr int kApart = 1;  // steps that a warpgroup stays behind
    struct Shared {
        Stage<T, kColumns> stages[kStages];
        TileAt tiles[kStages];  // where the tile of a stage is
        Mbarrier full[kStages], empty[kStages];
        Mbarrier ahead;  // the first warpgroup is so many steps ahead
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

// The shares of the classes that tiles have.
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

// Of one of a thread's two rows: half of its sums. first: the tile's first class. bias: from there
// on. target: counted from there, too.
template <class T, int N>
__device__ void take_row_of_tile(const float (&sums)[N], int half, const T* bias, int there,
                                 int64_t target, bool smooths, bool writes, int64_t at,
                                 const Statistics<T>& parts, Acc<T>* hit) {
    constexpr int kPairs = N / 4;
    Vec<T, 8> logits[kPairs / 4];
    const auto column = [](int i) { return column_of_sum(i / 2 * 4 + i % 2); };
    const auto logit = [&](int i) -> T& { return logits[i / 8][i % 8]; };
#pragma unroll
    for (int i = 0; i < 2 * kPairs; i += 2) {
        float two[] = {sums[i * 2 + half * 2], sums[i * 2 + half * 2 + 1]};
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
    parts.max[at] = soft.max;
    parts.sum[at] = soft.sum;
    parts.below[at] = below;
}

#endif

// parts: of each tile's share of the classes what it has of each row. hit: of a row, the logit of
// its target, if there is one.
template <class T>
__global__ void WGMMA_KERNEL(LogitTiles<T>::kThreads)
    take_tiles(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap w_map,
               LogitProduct<T> p, const int64_t* target, Statistics<T> parts, Acc<T>* hit,
               TileOrder order, bool smooths) {
#if HAS_WGMMA
    using Tiles = LogitTiles<T>;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Tiles::Shared>(dynamic);
    const int steps = int(ceil_div<int64_t>(p.depth, kTileDepth));
    // The shuffle tells the compiler that it is the same in a warp.
    const int group = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
    const int thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) {
        init_stages(shared, kConsumers);
        shared.ahead.init();
    }
    __syncthreads();

    Ring<Tiles::kStages> ring;
    if (group == kConsumers) {
        give_registers<40>();
        for (int n = blockIdx.x; thread == 0 && n < order.places(); n += gridDim.x) {
            TilePlace place;
            order.at(n, 0, place);
            for (int step = 0; step < steps; ++step, ring.next()) {
                auto& stage = shared.stages[ring.stage];
                Mbarrier& full = shared.full[ring.stage];
                shared.empty[ring.stage].wait((ring.round + 1) % 2);
                shared.tiles[ring.stage] = place;
                full.arrive_expect_tx(sizeof(stage));
                const int k = step * kTileDepth, first = int(place.column) * Tiles::kColumns;
                tma_load(stage.x, x_map, k, int(place.row) * kTileRows, 0, full);
                for (int c = 0; c < Tiles::kColumns; c += Tiles::kBox)
                    tma_load(stage.w + c * kTileDepth, w_map, k, first + c, 0, full);
            }
        }
        return;
    }
    take_registers<232>();
    const bool apart = steps >= Tiles::kStages;  // else one could be a whole tile ahead
    const int of_tile = group * 64;
    for (int n = blockIdx.x, tile = 0; n < order.places(); n += gridDim.x, ++tile) {
        shared.full[ring.stage].wait(ring.round % 2);
        const TileAt place = shared.tiles[ring.stage];
        const int64_t first = int64_t(place.column) * Tiles::kColumns;
        const int64_t row = int64_t(place.row) * kTileRows + of_tile + row_of_sum(0);
        int64_t targets[2];
        for (int i = 0; i < 2; ++i)
            targets[i] = row + 8 * i < p.rows ? target[row + 8 * i] - first : -1;
        if (apart && group > 0) shared.ahead.wait(tile % 2);
        float sums[1][Tiles::kColumns / 2];
        int before = 0;
        for (int step = 0; step < steps; ++step, ring.next()) {
            const auto& stage = shared.stages[ring.stage];
            shared.full[ring.stage].wait(ring.round % 2);
            multiply<false, false>(sums, stage.x + of_tile * kTileDepth, stage.w, step > 0);
            wgmma_wait<1>();  // the products of the step before are done
            if (step > 0 && thread == 0) shared.empty[before].arrive();
            shared.ahead.arrive_if(apart && step == Tiles::kApart && threadIdx.x == 0);
            before = ring.stage;
        }
        wgmma_wait<0>();
        if (thread == 0) shared.empty[before].arrive();
        const int there = int(smaller<int64_t>(p.classes - first, Tiles::kColumns));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int64_t r = row + 8 * i;
            take_row_of_tile<T>(
                sums[0], i, p.bias ? p.bias + first : nullptr, there, targets[i], smooths,
                r < p.rows && thread % 4 == 0, place.column * p.rows + r, parts, hit + r);
        }
    }
#endif
}

// Whether the tiles can be multiplied, on this GPU and as x and w lie in memory; if so, their maps.
template <class T>
bool make_logit_maps(CUtensorMap& x_map, CUtensorMap& w_map, const LogitProduct<T>& p) {
    using Tiles = LogitTiles<T>;
    const int64_t most = 0x7fffffff - Tiles::kColumns;  // TMA counts in 32 bits
    if (p.depth == 0 || p.depth > most || p.rows > most || p.classes > most) return false;
    if (p.depth % kVec<T> != 0 || p.w_row % kVec<T> != 0 || !is_aligned(p.x, p.w)) return false;
    const TileGrid grid(1, p.rows, p.classes, kTileRows, Tiles::kColumns);
    if (grid.tiles() > 0x3fffffff) return false;  // which are counted in 32 bits
    return has_wgmma(take_tiles<T>, Tiles::kThreads) && Tiles::kBytes <= shared_bytes() &&
           make_tensor_map(x_map, p.x, 1, p.rows, p.depth, 0, p.depth, kTileRows) &&
           make_tensor_map(w_map, p.w, 1, p.classes, p.depth, 0, p.w_row, Tiles::kBox);
}

template <class T>
bool launch_tiles(const LogitProduct<T>& p, const int64_t* target, const Statistics<T>& parts,
                  Acc<T>* hit, bool smooths, cudaStream_t stream) {
    using Tiles = LogitTiles<T>;
    CUtensorMap x_map, w_map;
    if (!make_logit_maps(x_map, w_map, p)) return false;
    const TileGrid grid(1, p.rows, p.classes, kTileRows, Tiles::kColumns);
    const TileOrder order(grid, 1, 16);
    cudaFuncSetAttribute(take_tiles<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiles::kBytes);
    const int blocks = smaller(order.places(), multiprocessors());
    take_tiles<<<blocks, Tiles::kThreads, Tiles::kBytes, stream>>>(
        x_map, w_map, p, target, parts, hit, order, smooths);
    return true;
}
