// The epilogues of matmul by wgmma: from the accumulators of a warpgroup to y, and to z if it is
// wanted.
//
//   epilogue_fused    16-bit y that TMA can store: all fused work in registers, stores by TMA
//   epilogue_tma      the same where y is only scaled
//   epilogue          any other y: through shared memory, or element by element (float)
//   store_partial     the accumulators of a split of k, to the workspace
//
// epilogue_element in matmul_product.cuh is that of the versions without wgmma.
#pragma once

#include "matmul_activations.cuh"
#include "wgmma.cuh"

constexpr int kAtOnce = 32;    // accumulators of a thread for 64 columns, in two rows
constexpr int kWarpRows = 16;  // of a warpgroup's 64

// The shared memory of a warpgroup's epilogue: two chunks of 32 float columns (or 64 of 16 bits) in
// rows of 128 bytes. They hold the left and the right half of z, or two chunks in alternation.
constexpr int kChunk = 32;
struct alignas(kTileAlign) EpilogueBuffers {
    float chunks[2][64 * kChunk];
};

// Where a box is in a tensor map.
struct BoxAt {
    int column, row, matrix;
};

// The first row and unit that an epilogue stores: what comes before belongs to another tile. edge:
// a map of y in boxes of 8 rows. Units are a multiple of 64 after the first of the tile, and rows
// one of 8. At least 64 units are its own.
struct OwnPart {
    int row = 0, unit = 0;
    const CUtensorMap* edge = nullptr;
};

// Whether the residual is y itself: y += scale * x w^T.
template <class T>
__host__ __device__ bool adds_to_y(const Product<T>& p) {
    return p.residual == p.y;
}

template <class T>
__host__ __device__ bool is_plain(const Product<T>& p) {
    return !p.bias && (!p.residual || adds_to_y(p)) && !p.z && p.act == kNone;
}

#if HAS_WGMMA

// Two neighbouring 16-bit values as one word, in the order of the accumulators.
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

// Two elements of the bias of a tile that begins at `unit`: each thread of the warpgroup loads a
// pair, and shared memory then serves it to all.
template <class T>
__device__ uint32_t bias_of_tile(const Product<T>& p, int unit, int columns) {
    const int of_half = columns / rows_per_unit(p), column = threadIdx.x % kWarpgroup * 2;
    const int at = unit + column % of_half;
    return pair_at(
        p.bias + column / of_half * p.units + at, p.bias && column < columns && at < p.units);
}

// Turns accumulators into z = scale * accumulator + bias. bias: of their columns, in pairs.
template <class T, int N>
__device__ void make_z(float (&z)[N], float scale, const uint32_t* bias) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const uint32_t pair = bias[accum_column(i) / 2];
#pragma unroll
        for (int k = 0; k < 4; ++k) z[i + k] = scale * z[i + k] + of_pair<T>(pair, k % 2);
    }
}

// Adds the residual of 64 columns, which lies in a box in the layout of store_accum.
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

// Stores a box by TMA, but for rows of another tile.
template <int rows>
__device__ void store_box(const CUtensorMap& map, const char* box, const BoxAt& at,
                          const OwnPart& own) {
    if (at.row >= own.row) return tma_store(map, box, at.column, at.row, at.matrix);
    for (int r = 0; r < rows; r += 8) {
        if (at.row + r >= own.row)
            tma_store_part(*own.edge, box + r * kTileRow, at.column, at.row + r, at.matrix);
    }
    tma_store_commit();
}

// Stores 64 columns of a warpgroup by TMA, each warp its own rows, so that no warp waits for
// another. (Where nothing is fused all warps arrive together, and one store of 64 rows is faster:
// epilogue_tma.) stored: counts the stores, which alternate between two buffers.
template <class T, class EpilogueBuffers>
__device__ void store_chunk(const float (&y)[kAtOnce], EpilogueBuffers& buffers,
                            const CUtensorMap& map, const BoxAt& at, int& stored,
                            const OwnPart& own = {}) {
    const bool first = threadIdx.x % kWarp == 0;
    char* const box = reinterpret_cast<char*>(buffers.chunks[stored++ % 2]);
    if (first) tma_store_wait_read<1>();  // these rows of the buffer are free
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kAtOnce; i += 8) {
        uint32_t words[4];
        for (int k = 0; k < 4; ++k) words[k] = rounded_pair<T>(y[i + 2 * k], y[i + 2 * k + 1]);
        store_accum(box, 2 * i, words);
    }
    tma_writes_done();
    __syncwarp();
    const int of_warp = threadIdx.x % kWarpgroup / kWarp * kWarpRows;
    if (first)
        store_box<kWarpRows>(
            map, box + of_warp * kTileRow, {at.column, at.row + of_warp, at.matrix}, own);
}
// Stores the last 32 columns of a warpgroup's tile, where a box of TMA would reach into the next
// tile: each warp its own rows, in vectors. box: free. at: of the warpgroup's first row.
template <class T>
__device__ void store_half_chunk(const float (&y)[kAtOnce / 2], char* box, const Product<T>& p,
                                 const BoxAt& at, const OwnPart& own) {
#pragma unroll
    for (int i = 0; i < kAtOnce / 2; i += 8) {
        uint32_t words[4];
        for (int k = 0; k < 4; ++k) words[k] = rounded_pair<T>(y[i + 2 * k], y[i + 2 * k + 1]);
        store_accum(box, 2 * i, words);
    }
    __syncwarp();
    const int lane = threadIdx.x % kWarp, column = at.column + lane % 4 * kVec<T>;
    const int of_warp = threadIdx.x % kWarpgroup / kWarp * kWarpRows;
    for (int r = of_warp + lane / 4; r < of_warp + kWarpRows; r += kWarp / 4) {
        const int64_t row = at.row + r;
        if (row < own.row || row >= p.rows || column >= p.units) continue;
        const auto* const from = reinterpret_cast<const T*>(box + swizzled(r, lane % 4 * 16));
        store_at_once(p.y + (at.matrix * p.rows + row) * p.units + column, load<kVec<T>>(from));
    }
}

// Waits until the stores of this warp are complete, which must happen before it exits.
__device__ inline void wait_for_stores() {
    if (threadIdx.x % kWarp == 0) tma_store_wait();
}

// The epilogue of a warpgroup's tile, whose first row and unit are given. Where 32 columns are left
// after the chunks, there is no z and no residual.
// more: whether there may be a z or a residual. maps.of_z, box_of_z: where z goes.
template <Act act, bool more, class T, class Residual, class Maps, class EpilogueBuffers, int N>
__device__ void epilogue_activated(float (&accum)[N], const Product<T>& p, const uint32_t* bias,
                                   Residual& residual, const Maps& maps, EpilogueBuffers& buffers,
                                   int matrix, int row, int unit, int& stored, const OwnPart& own) {
    constexpr int kChunks = N / kAtOnce;
    constexpr bool gated = kChunks > 1 && act == kSwiglu;
    constexpr int count = gated ? kChunks / 2 : kChunks;
    auto& chunks = reinterpret_cast<float (&)[kChunks][kAtOnce]>(accum);
#pragma unroll
    for (int n = 0; n < count; ++n, unit += 64) {
        auto& y = chunks[n];
        auto& right = chunks[(n + kChunks / 2) % kChunks];
        const BoxAt at = {unit, row, matrix};
        make_z<T>(y, p.scale, bias + n * kAtOnce);
        if (gated) make_z<T>(right, p.scale, bias + n * kAtOnce + N / 2);
        if (more && p.z) {
            store_chunk<T>(y, buffers, maps.of_z(0), maps.box_of_z(0, at), stored);
            if (gated) store_chunk<T>(right, buffers, maps.of_z(1), maps.box_of_z(1, at), stored);
        }
        activate<act, T>(y);
        if (gated) {
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) y[i] *= right[i];
        }
        if (more && p.residual) add_residual(y, residual.wait_for(n));
        if (unit >= own.unit) store_chunk<T>(y, buffers, maps.y, at, stored, own);
        if (more && p.residual) residual.release(n, n == count - 1);
    }
    if constexpr (N % kAtOnce != 0) {
        auto& y = reinterpret_cast<float (&)[N % kAtOnce]>(accum[N / kAtOnce * kAtOnce]);
        make_z<T>(y, p.scale, bias + N / kAtOnce * kAtOnce);
        activate<act, T>(y);
        if (threadIdx.x % kWarp == 0) tma_store_wait_read<1>();  // these rows of the box are free
        __syncwarp();
        char* const box = reinterpret_cast<char*>(buffers.chunks[stored % 2]);
        store_half_chunk(y, box, p, {unit, row, matrix}, own);
    }
}
template <class T, class Residual, class Maps, class EpilogueBuffers, int N>
__device__ void epilogue_fused(float (&accum)[N], const Product<T>& p, const uint32_t* bias,
                               Residual& residual, const Maps& maps, EpilogueBuffers& buffers,
                               int matrix, int row, int unit, int& stored,
                               const OwnPart& own = {}) {
    with_act(p.act, [&](auto act) {
        if (p.z || p.residual) {
            epilogue_activated<act, true>(
                accum, p, bias, residual, maps, buffers, matrix, row, unit, stored, own);
        } else {
            epilogue_activated<act, false>(
                accum, p, bias, residual, maps, buffers, matrix, row, unit, stored, own);
        }
    });
}

// ---- epilogues by way of shared memory
//
// The accumulators of a thread are scattered over rows. Shared memory transposes them, so that each
// thread has eight neighbours of a row and reads bias and residual, and writes y and z, in
// coalesced accesses of 16 bytes.

// Copies chunk n of the accumulators to shared memory.
template <int chunks, int N>
__device__ void accum_to_shared(float* box, const float (&accum)[chunks][N], int n) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const float two[] = {select_register(accum, n, i), select_register(accum, n, i + 1)};
        char* const to = reinterpret_cast<char*>(box);
        store(reinterpret_cast<float*>(to + swizzled(accum_row(i), 4 * accum_column(i))), two);
    }
}

// Eight neighbouring elements of a row of y.
template <class T>
struct EpilogueVector {
    int64_t row, unit;  // row over all matrices; first of the eight units
    int valid;          // how many of them are inside y
    bool vectors;       // whether 16-byte accesses are aligned

    __device__ void read(float (&to)[8], const T* from) const {
        if (vectors) {
            const Vec<T, 8> all = load<8>(from);
#pragma unroll
            for (int i = 0; i < 8; ++i) to[i] = float(all[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) to[i] = i < valid ? float(from[i]) : 0.f;
        }
    }
    __device__ void write(T* to, const float (&from)[8]) const {
        if (vectors) {
            Vec<T, 8> all;
#pragma unroll
            for (int i = 0; i < 8; ++i) all[i] = T(from[i]);
            store_at_once(to, all);
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (i < valid) to[i] = T(from[i]);
        }
    }

    // Computes z from a row of accumulators in shared memory. half: of z, with swiglu.
    __device__ void make_z(float (&z)[8], const float* box, int line, int column,
                           const Product<T>& p, int half) const {
        const char* const from = reinterpret_cast<const char*>(box);
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            const Vec<float, 4> four =
                load<4>(reinterpret_cast<const float*>(from + swizzled(line, 4 * (column + i))));
#pragma unroll
            for (int k = 0; k < 4; ++k) z[i + k] = p.scale * four[k];
        }
        if (p.bias) {
            float bias[8];
            read(bias, p.bias + half * p.units + unit);
#pragma unroll
            for (int i = 0; i < 8; ++i) z[i] += bias[i];
        }
        if (p.z) write(p.z + (row * rows_per_unit(p) + half) * p.units + unit, z);
    }
};

// The epilogue of a warpgroup's tile, whose first row and unit are given.
template <class T, int N>
__device__ void epilogue(const float (&accum)[N], const Product<T>& p, EpilogueBuffers& buffers,
                         int64_t matrix, int row, int64_t unit, int group,
                         const OwnPart& own = {}) {
    constexpr int kChunks = N / 16;
    const auto& chunks = reinterpret_cast<const float (&)[kChunks][16]>(accum);
    const int count = kChunks / rows_per_unit(p), thread = threadIdx.x % kWarpgroup;
    const bool vectors = p.units % 8 == 0 && is_aligned(p.y, p.z, p.bias, p.residual);
#pragma unroll 1
    for (int n = 0; n < count; ++n, unit += kChunk) {
        warpgroup_barrier(group);  // the buffers are free
        accum_to_shared(buffers.chunks[0], chunks, n);
        if (p.act == kSwiglu) accum_to_shared(buffers.chunks[1], chunks, count + n);
        warpgroup_barrier(group);
#pragma unroll 1
        for (int line = thread / 4; line < 64; line += 32) {
            const int column = thread % 4 * 8;
            const int64_t left = p.units - unit - column;
            if (row + line >= p.rows || left <= 0) continue;
            if (row + line < own.row || unit + column < own.unit) continue;
            const EpilogueVector<T> vec = {matrix * p.rows + row + line, unit + column,
                                           int(smaller<int64_t>(left, 8)), vectors};
            float residual[8], right[8], y[8];
            if (p.residual) vec.read(residual, p.residual + vec.row * p.units + vec.unit);
            if (p.act == kSwiglu) vec.make_z(right, buffers.chunks[1], line, column, p, 1);
            vec.make_z(y, buffers.chunks[0], line, column, p, 0);
            with_act(p.act, [&](auto act) { activate<act, T>(y); });
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                if (p.act == kSwiglu) y[i] *= right[i];
                if (p.residual) y[i] += residual[i];
            }
            vec.write(p.y + vec.row * p.units + vec.unit, y);
        }
    }
}

// The epilogue for float: each thread writes its own elements.
template <int N>
__device__ void epilogue(const float (&accum)[N], const Product<float>& p, EpilogueBuffers&,
                         int64_t matrix, int row, int64_t unit, int, const OwnPart& own = {}) {
    constexpr int kChunks = N / 16;
    const auto& chunks = reinterpret_cast<const float (&)[kChunks][16]>(accum);
    const int count = kChunks / rows_per_unit(p);
#pragma unroll 1
    for (int n = 0; n < count; ++n, unit += kChunk) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int64_t r = row + accum_row(i), u = unit + accum_column(i);
            if (r < p.rows && u < p.units && r >= own.row && u >= own.unit)
                epilogue_element(p, matrix, r, u, select_register(chunks, n, i),
                                 select_register(chunks, (n + count) % kChunks, i));
        }
    }
}

// The epilogue for y = scale * accumulator, or y += if `adds`: by TMA, 64 columns at a time, while
// the threads go on; what is left of fewer columns is for epilogue_rest. stored: counts the stores.
template <class T, int N>
__device__ void epilogue_tma(const float (&accum)[N], float scale, EpilogueBuffers& buffers,
                             const CUtensorMap& map, int matrix, int row, int unit, int group,
                             int& stored, bool adds = false, const OwnPart& own = {}) {
    const bool first = threadIdx.x % kWarpgroup == 0;
#pragma unroll
    for (int n = 0; n + kAtOnce <= N; n += kAtOnce, unit += 64) {
        if (unit < own.unit) continue;
        char* const box = reinterpret_cast<char*>(buffers.chunks[stored++ % 2]);
        if (first) tma_store_wait_read<1>();  // the buffer is free
        warpgroup_barrier(group);
#pragma unroll
        for (int i = 0; i < kAtOnce; i += 8) {
            uint32_t words[4];
            for (int k = 0; k < 4; ++k)
                words[k] =
                    rounded_pair<T>(scale * accum[n + i + 2 * k], scale * accum[n + i + 2 * k + 1]);
            store_accum(box, 2 * i, words);
        }
        tma_writes_done();
        warpgroup_barrier(group);
        if (first && adds) {
            tma_add(map, box, unit, row, matrix);
        } else if (first) {
            store_box<64>(map, box, {unit, row, matrix}, own);
        }
    }
}

// y = scale * accumulator for the 32 columns that a tile has beyond whole chunks of 64.
template <class T, int N>
__device__ void epilogue_rest(const float (&accum)[N], const Product<T>& p,
                              EpilogueBuffers& buffers, int matrix, int row, int unit, int group,
                              int stored, const OwnPart& own) {
    if constexpr (N % kAtOnce != 0) {
        constexpr int kRest = N % kAtOnce, kBefore = N - kRest;
        float y[kRest];
#pragma unroll
        for (int i = 0; i < kRest; ++i) y[i] = p.scale * accum[kBefore + i];
        if (threadIdx.x % kWarpgroup == 0) tma_store_wait_read<1>();  // the buffer is free
        warpgroup_barrier(group);
        char* const box = reinterpret_cast<char*>(buffers.chunks[stored % 2]);
        store_half_chunk(y, box, p, {unit + 2 * kBefore, row, matrix}, own);
    }
}

// Stores the accumulators of one split as they lie in the registers of `threads` threads, in
// coalesced writes of 16 bytes.
template <int N>
__device__ void store_partial(float* to, const float (&accum)[N], int thread, int threads) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const Vec<float, 4> four = {accum[i], accum[i + 1], accum[i + 2], accum[i + 3]};
        store(to + (int64_t(i / 4) * threads + thread) * 4, four);
    }
}

#endif
