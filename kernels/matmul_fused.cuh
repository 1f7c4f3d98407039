// From a warpgroup's sums to y, with all that is fused into a product, in the registers that hold
// the sums. The results leave by way of shared memory and TMA, 64 columns at a time, while the
// threads go on.
#pragma once

#include "matmul_product.cuh"
#include "wgmma.cuh"

#if HAS_WGMMA

constexpr int kAtOnce = 32;  // of a thread's sums: those of 64 columns, in two rows

// z made to y, but for residual.
template <int N>
__device__ void activate(float (&z)[N], Act act) {
    switch (act) {
        case kRelu:
#pragma unroll
            for (int i = 0; i < N; ++i) z[i] = quickly_activated(kRelu, z[i]);
            return;
        case kGelu:
#pragma unroll
            for (int i = 0; i < N; ++i) z[i] = quickly_activated(kGelu, z[i]);
            return;
        case kSilu:
        case kSwiglu:
#pragma unroll
            for (int i = 0; i < N; ++i) z[i] = quickly_activated(kSilu, z[i]);
            return;
        default:
            return;
    }
}

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

// The residual of 64 columns. It is asked for when that of the columns before is used up, or a
// warpgroup would wait for each.
template <class T>
class Residual {
    uint32_t pairs[2][8];  // of a thread's upper and lower row

  public:
    __device__ void ask(const Product<T>& p, int64_t matrix, int row, int unit) {
        if (!p.residual) return;
        const int column = unit + column_of_sum(0);
        const bool whole = row + 64 <= p.rows && unit + 64 <= p.units;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t line = row + row_of_sum(2 * half);
            const T* const first = p.residual + (matrix * p.rows + line) * p.units + column;
#pragma unroll
            for (int i = 0; i < 8; ++i)
                pairs[half][i] =
                    pair_at(first + 8 * i, whole || (line < p.rows && column + 8 * i < p.units));
        }
    }
    __device__ void add_to(float (&y)[kAtOnce]) const {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) y[i] += of_pair<T>(pairs[i / 2 % 2][i / 4], i % 2);
    }
};

// 64 columns of z. bias: of these columns, in pairs.
template <class T>
__device__ void make_z(float (&z)[kAtOnce], const float* sums, float scale, const uint32_t* bias) {
#pragma unroll
    for (int i = 0; i < kAtOnce; i += 4) {
        const uint32_t pair = bias[column_of_sum(i) / 2];
#pragma unroll
        for (int k = 0; k < 4; ++k) z[i + k] = scale * sums[i + k] + of_pair<T>(pair, k % 2);
    }
}

// Stores 64 columns of a warpgroup. turn: counts the boxes, of which two are there in turn.
template <class T, class Boxes>
__device__ void store_by_box(const float (&y)[kAtOnce], Boxes& boxes, const CUtensorMap& map,
                             int column, int row, int matrix, int group, int& turn) {
    const bool first = threadIdx.x % kWarpgroup == 0;
    char* const box = reinterpret_cast<char*>(boxes.chunks[turn++ % 2]);
    if (first) tma_store_wait_read<1>();  // what this box held before is stored
    warpgroup_barrier(group);
#pragma unroll
    for (int i = 0; i < kAtOnce; i += 8) {
        uint32_t words[4];
        for (int k = 0; k < 4; ++k) words[k] = rounded_pair<T>(y[i + 2 * k], y[i + 2 * k + 1]);
        store_sums(box, 2 * i, words);
    }
    tma_writes_done();
    warpgroup_barrier(group);
    if (first) tma_store(map, box, column, row, matrix);
}

// The sums of a warpgroup, whose first row and unit are given, made to y, and to z if it is wanted.
// z has its halves as matrices of one map.
template <class T, class Maps, class Boxes, int N>
__device__ void store_fused(const float (&sums)[N], const Product<T>& p, const uint32_t* bias,
                            Residual<T>& residual, const Maps& maps, Boxes& boxes, int matrix,
                            int row, int unit, int group, int& turn) {
    const bool gated = N > kAtOnce && p.act == kSwiglu;
    const int count = gated ? N / 2 : N;
#pragma unroll
    for (int n = 0; n < N; n += kAtOnce, unit += 64) {
        if (n >= count) break;
        float y[kAtOnce], right[kAtOnce];
        make_z<T>(y, &sums[n], p.scale, bias + n);
        if (gated) make_z<T>(right, &sums[(n + N / 2) % N], p.scale, bias + n + N / 2);
        if (p.z) {
            store_by_box<T>(y, boxes, maps.z, unit, row, 0, group, turn);
            if (gated) store_by_box<T>(right, boxes, maps.z, unit, row, 1, group, turn);
        }
        activate(y, p.act);
        if (gated) {
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) y[i] *= right[i];
        }
        if (p.residual) residual.add_to(y);
        if (n + kAtOnce < count) residual.ask(p, matrix, row, unit + 64);
        store_by_box<T>(y, boxes, maps.y, unit, row, matrix, group, turn);
    }
}

#endif
