// From a warpgroup's sums to y, with all that is fused into a product, in the registers that hold
// the sums. The results leave by way of shared memory and TMA, 64 columns at a time, while the
// threads go on.
#pragma once

#include "matmul_quick_acts.cuh"
#include "wgmma.cuh"

constexpr int kAtOnce = 32;    // of a thread's sums: those of 64 columns, in two rows
constexpr int kWarpRows = 16;  // of a warpgroup's 64

#if HAS_WGMMA

// Two neighbours of 16 bits, as one word: so a thread has its sums.
template <class T>
__device__ uint32_t pair_at(const T* first, bool there) {
    return there ? *reinterpret_cast<const uint32_t*>(first) : 0;
}
template <class T>
__device__ float of_pair(uint32_t pair, int i) {
    T both[2];
    memcpy(both, &pair, sizeof(pair));
    return float(both[i]);
}

// The bias of a tile's columns, which begins with `unit`: the two that this thread of a warpgroup
// brings to shared memory, from where all of them read it.
template <class T>
__device__ uint32_t bias_of_tile(const Product<T>& p, int unit, int columns) {
    const int of_half = columns / halves(p), column = threadIdx.x % kWarpgroup * 2;
    const int at = unit + column % of_half;
    return pair_at(
        p.bias + column / of_half * p.units + at, p.bias && column < columns && at < p.units);
}

// 64 columns of sums made to z. bias: of these columns, in pairs.
template <class T>
__device__ void make_z(float (&z)[kAtOnce], float scale, const uint32_t* bias) {
#pragma unroll
    for (int i = 0; i < kAtOnce; i += 4) {
        const uint32_t pair = bias[column_of_sum(i) / 2];
#pragma unroll
        for (int k = 0; k < 4; ++k) z[i + k] = scale * z[i + k] + of_pair<T>(pair, k % 2);
    }
}

// Adds the residual of 64 columns, which stands in a box as store_sums would leave it there.
template <class T>
__device__ void add_residual(float (&y)[kAtOnce], const T* box) {
    const int lane = threadIdx.x % kWarp;
    const int row = threadIdx.x % kWarpgroup / kWarp * 16 + lane % 16;
    const char* const from = reinterpret_cast<const char*>(box);
#pragma unroll
    for (int i = 0; i < kAtOnce; i += 8) {
        uint32_t words[4];
        ldmatrix(words, from + swizzled(row, 4 * i + lane / 16 * 16), false);
#pragma unroll
        for (int k = 0; k < 8; ++k) y[i + k] += of_pair<T>(words[k / 2], k % 2);
    }
}

// Stores 64 columns of a warpgroup: each warp its rows, so that it waits for nobody. (Where nothing
// is fused all warps are there at once, and 64 rows by one of them take less time.) turn: counts
// the boxes, of which two are there in turn.
template <class T, class Boxes>
__device__ void store_by_box(const float (&y)[kAtOnce], Boxes& boxes, const CUtensorMap& map,
                             int column, int row, int matrix, int& turn) {
    const bool first = threadIdx.x % kWarp == 0;
    char* const box = reinterpret_cast<char*>(boxes.chunks[turn++ % 2]);
    if (first) tma_store_wait_read<1>();  // what these rows of the box held before is stored
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kAtOnce; i += 8) {
        uint32_t words[4];
        for (int k = 0; k < 4; ++k) words[k] = rounded_pair<T>(y[i + 2 * k], y[i + 2 * k + 1]);
        store_sums(box, 2 * i, words);
    }
    tma_writes_done();
    __syncwarp();
    const int of_warp = threadIdx.x % kWarpgroup / kWarp * kWarpRows;
    if (first) tma_store(map, box + of_warp * kTileRow, column, row + of_warp, matrix);
}
// Before a warp ends, what it has stored has to be there.
__device__ inline void wait_for_stores() {
    if (threadIdx.x % kWarp == 0) tma_store_wait();
}

// The sums of a warpgroup, whose first row and unit are given, made to y, and to z if it is wanted.
// z has its halves as matrices of one map. more: whether there may be z or a residual.
template <Act act, bool more, class T, class Residual, class Maps, class Boxes, int N>
__device__ void store_activated(float (&sums)[N], const Product<T>& p, const uint32_t* bias,
                                Residual& residual, const Maps& maps, Boxes& boxes, int matrix,
                                int row, int unit, int& turn) {
    constexpr int kChunks = N / kAtOnce;
    constexpr bool gated = kChunks > 1 && act == kSwiglu;
    constexpr int count = gated ? kChunks / 2 : kChunks;
    auto& chunks = reinterpret_cast<float (&)[kChunks][kAtOnce]>(sums);
#pragma unroll
    for (int n = 0; n < count; ++n, unit += 64) {
        auto& y = chunks[n];
        auto& right = chunks[(n + kChunks / 2) % kChunks];
        make_z<T>(y, p.scale, bias + n * kAtOnce);
        if (gated) make_z<T>(right, p.scale, bias + n * kAtOnce + N / 2);
        if (more && p.z) {
            store_by_box<T>(y, boxes, maps.z, unit, row, 0, turn);
            if (gated) store_by_box<T>(right, boxes, maps.z, unit, row, 1, turn);
        }
        activate<act, T>(y);
        if (gated) {
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) y[i] *= right[i];
        }
        if (more && p.residual) add_residual(y, residual.wait_for(n));
        store_by_box<T>(y, boxes, maps.y, unit, row, matrix, turn);
        if (more && p.residual) residual.is_read(n, n == count - 1);
    }
}
template <class T, class Residual, class Maps, class Boxes, int N>
__device__ void store_fused(float (&sums)[N], const Product<T>& p, const uint32_t* bias,
                            Residual& residual, const Maps& maps, Boxes& boxes, int matrix, int row,
                            int unit, int& turn) {
    with_act(p.act, [&](auto act) {
        if (p.z || p.residual) {
            store_activated<act, true>(
                sums, p, bias, residual, maps, boxes, matrix, row, unit, turn);
        } else {
            store_activated<act, false>(
                sums, p, bias, residual, maps, boxes, matrix, row, unit, turn);
        }
    });
}

#endif
