// Products of up to 16 rows of x by mma.sync, of matmul and of matmul_w8a16.
#pragma once

#include "dependent_launch.cuh"
#include "int8.cuh"
#include "matmul_product.cuh"
#include "mma.cuh"

// ---- few rows by mma: the operands are swapped. w is the 16-row operand of the fragment, and x,
// which has fewer rows, the 8-column one: y^T = w x^T. No weight is shared, so each goes straight
// from memory to the registers of the lane that multiplies it. A block has 16 rows of w. Its warps
// share k (sliced-K), and their accumulators are added up at the end, always in the same order.
//
// Which k an element of a fragment stands for is arbitrary, as long as it is the same for w and x.
// So each of the four lanes of a row loads 16 neighbouring bytes at once, and multiplies four of
// their elements at a time.
// Flaw: each block reads all of x, from the caches: with more than 16
// rows that is more than w.

constexpr int kFewRowsMma = 16, kFewUnits = 16, kFewThreads = 256;
constexpr int kFewBlocks = 2;            // resident per multiprocessor, with dependent launch
constexpr int kFewPrefetchDepth = 1024;  // of k: 16-bit weights prefetched to the L2 cache

// Whether the kernel uses programmatic dependent launch. Up to 8 rows of x and weights of one byte
// are slower with it: three resident blocks hide each other's latency, and blocks of the next
// kernel would be spread unevenly.
template <class W, int rows>
constexpr bool kFewUsesPdl = sizeof(W) == 2 || rows > 8;

// 16 bytes of w in a lane, as they become fragments of two rows, four k at a time.
template <class T, class W>
struct LaneWeights {
    uint32_t words[4];

    // Pair i of four: the first two elements, or the last two.
    __device__ uint32_t pair(int i, bool last) const {
        if constexpr (sizeof(W) == 1) return pair_of_bytes<T>(words[i], last);
        return words[2 * i % 4 + last];
    }
};

// 16 bytes, or zeros.
template <class E>
__device__ void load_words(uint32_t* to, const E* from, bool there) {
    const Vec<uint32_t, 4> words =
        there ? load<4>(reinterpret_cast<const uint32_t*>(from)) : Vec<uint32_t, 4>{};
    memcpy(to, words.at, sizeof(words));
}

// The same for weights, which are read once: they do not displace x from the L1 cache.
template <class E>
__device__ void load_weights(uint32_t* to, const E* from, bool there) {
#if PLAYGROUND_CUDA
    for (int i = 0; i < 4; ++i) to[i] = 0;
    asm volatile(
        "{ .reg .pred there;"
        "  setp.ne.u32 there, %4, 0;"
        "  @there ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%5]; }"
        : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
        : "r"(unsigned(there)), "l"(from));
#else
    load_words(to, from, there);
#endif
}

// The same from an address that is a multiple of an element only: aligned words of two elements,
// shifted by one where `from` lies within a word. Elements outside the row, of which k are before
// `from` and `left` from there on, are 0 and not read.
template <class E>
__device__ void load_unaligned(uint32_t (&to)[4], const E* from, int k, int left) {
    const int shift = int(reinterpret_cast<uintptr_t>(from) / sizeof(E) % 2);
    const auto element = [&](int i) {
        uint16_t bits;
        memcpy(&bits, from + i, sizeof(bits));
        return uint32_t(bits);
    };
    uint32_t words[5];
#pragma unroll
    for (int i = 0; i < 5; ++i) {
        const int first = 2 * i - shift;
        const bool has_first = first + k >= 0 && first < left, has_second = first + 1 < left;
        words[i] = 0;
        if (has_first && has_second && (i < 4 || shift)) {
            words[i] = *reinterpret_cast<const uint32_t*>(from + first);
        } else {
            if (has_first) words[i] = element(first);
            if (has_second && first + 1 < 8) words[i] |= element(first + 1) << 16;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = shift ? words[i] >> 16 | words[i + 1] << 16 : words[i];
}

// W: the type of the weights. by_block: whether scales differ along k. at_once: blocks that start
// while the previous kernel still runs. unaligned: whether rows of x and w begin anywhere.
template <class T, class W, int rows, bool by_block, class P, bool unaligned = false>
__global__ void __launch_bounds__(kFewThreads, kFewUsesPdl<W, rows> ? kFewBlocks : 3)
matmul_few_rows_mma(P p, int64_t tiles, int64_t at_once) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    constexpr int kTiles = rows / 8, kWarps = kFewThreads / kWarp;
    constexpr int kEach = kVec<W>, kDepth = 4 * kEach;  // of k, at a time: of a lane, of a warp
    // Unrolling: loads in flight, as many as registers allow.
    constexpr int kAhead = unaligned ? 2 : sizeof(W) == 2 && rows == 8 ? 8 : 4;
    __shared__ float partials[kWarps][rows][kFewUnits + 1];  // + 1 avoids bank conflicts
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, of_row = lane / 4;
    const int units = kFewUnits / rows_per_unit(p);
    const int64_t matrix = blockIdx.x / tiles, first = blockIdx.x % tiles * units;
    const W* w[2];  // rows past the end are multiplied but not written
    const T* x[kTiles];
    for (int i = 0; i < 2; ++i) {  // with swiglu, one row of each half
        const int64_t unit = smaller(first + of_row + (units > 8 ? i * 8 : 0), p.units - 1);
        w[i] = at(p.w, matrix, unit + (units > 8 ? 0 : i * p.units), 0);
    }
    for (int n = 0; n < kTiles; ++n)
        x[n] = at(p.x, matrix, smaller<int64_t>(of_row + n * 8, p.rows - 1), 0);

    if (kFewUsesPdl<W, rows>) {
        launch_dependents();
        const int row = threadIdx.x;
        if (sizeof(W) == 2 && !unaligned && blockIdx.x < at_once &&
            row < units * rows_per_unit(p)) {
            const int64_t unit = smaller(first + row % units, p.units - 1) + row / units * p.units;
            const int64_t count = smaller<int64_t>(p.depth, kFewPrefetchDepth);
            load_to_l2(at(p.w, matrix, unit, 0), int(count * sizeof(W)));
        }
        grid_dependency_wait();
    }
    const int depth = int(p.depth);
    float final_accum[kTiles][4] = {};
#pragma unroll kAhead
    for (int begin = warp * kDepth; begin < depth; begin += kWarps * kDepth) {
        const int k = begin + lane % 4 * kEach;
        LaneWeights<T, W> of_w[2];
        uint32_t of_x[kTiles][kEach / 2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if constexpr (unaligned) {
                load_unaligned(of_w[i].words, w[i] + k, k, depth - k);
            } else {
                load_weights(of_w[i].words, w[i] + k, k < depth);
            }
        }
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
#pragma unroll
            for (int i = 0; i < kEach; i += kVec<T>) {
                if constexpr (unaligned) {
                    load_unaligned(of_x[n], x[n] + k, k, depth - k);
                } else {
                    load_words(&of_x[n][i / 2], x[n] + k + i, k < depth);
                }
            }
        }
        float block_accum[kTiles][4] = {};
        auto& accum = by_block ? block_accum : final_accum;
#pragma unroll
        for (int i = 0; i < kEach / 4; ++i) {
            const uint32_t a[4] = {of_w[0].pair(i, false), of_w[1].pair(i, false),
                                   of_w[0].pair(i, true), of_w[1].pair(i, true)};
            for (int n = 0; n < kTiles; ++n) mma<T>(accum[n], a, &of_x[n][2 * i]);
        }
        if constexpr (by_block) {
            for (int i = 0; i < 4; ++i) {
                const float scale = block_scale(p, first + of_row + i / 2 * 8, begin);
                for (int n = 0; n < kTiles; ++n) final_accum[n][i] += block_accum[n][i] * scale;
            }
        }
    }

    for (int n = 0; n < kTiles; ++n)
        for (int i = 0; i < 4; ++i)
            partials[warp][n * 8 + lane % 4 * 2 + i % 2][of_row + i / 2 * 8] = final_accum[n][i];
    __syncthreads();
    const int row = threadIdx.x / kFewUnits, column = threadIdx.x % kFewUnits;
    if (row >= p.rows || column >= units || first + column >= p.units) return;
    float sum = 0, gate = 0;
    for (int n = 0; n < kWarps; ++n) {
        sum += partials[n][row][column];
        gate += partials[n][row][(column + 8) % kFewUnits];
    }
    epilogue_element(p, matrix, row, first + column, sum, gate);
#endif
}

template <class T, class W, int rows, bool by_block, bool unaligned = false, class P>
bool launch_few_rows_mma(const P& p, int64_t batch, cudaStream_t stream) {
    const auto kernel = matmul_few_rows_mma<T, W, rows, by_block, P, unaligned>;
    cudaFuncAttributes compiled = {};
    if (p.rows > rows || cudaFuncGetAttributes(&compiled, kernel) != cudaSuccess ||
        compiled.ptxVersion < 80)
        return false;
    const int64_t tiles = ceil_div<int64_t>(p.units, kFewUnits / rows_per_unit(p));
    if (batch * tiles > 0x7fffffff || p.depth > 0x3fffffff) return false;  // counted in 32 bits
    if (kFewUsesPdl<W, rows>) {
        launch_secondary(kernel, 1, unsigned(batch * tiles), dim3(kFewThreads), stream, p, tiles,
                         kFewBlocks * multiprocessors());
    } else {
        kernel<<<batch * tiles, kFewThreads, 0, stream>>>(p, tiles, 0);
    }
    return true;
}

// False if there are more rows, or this GPU or the layout of x and w does not allow it.
template <class T, class W, bool by_block, class P>
bool launch_few_rows_mma(const P& p, int64_t batch, cudaStream_t stream) {
    if (p.x.col != 1 || p.w.col != 1 || p.depth % kVec<W> != 0) return false;
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w)) return false;
    return launch_few_rows_mma<T, W, 8, by_block>(p, batch, stream) ||
           launch_few_rows_mma<T, W, kFewRowsMma, by_block>(p, batch, stream);
}

// Whether a w whose rows do not begin on multiples of 16 bytes is read as it is, wide: its rows.
// Narrow loads need all blocks that a GPU holds to be as fast; otherwise w is copied first. On an
// H200 reading takes 1.3 to 2.5 times less than the copy with so many blocks, and up to 3 times
// more with fewer.
inline bool prefers_unaligned(int64_t rows, int64_t wide) {
    return rows <= kFewRowsMma && wide >= kFewUnits * kFewBlocks * multiprocessors();
}

// The same where rows do not begin on multiples of 16 bytes.
template <class T, class P>
bool launch_few_rows_unaligned(const P& p, int64_t batch, cudaStream_t stream) {
    if (p.x.col != 1 || p.w.col != 1) return false;
    return launch_few_rows_mma<T, T, 8, false, true>(p, batch, stream) ||
           launch_few_rows_mma<T, T, kFewRowsMma, false, true>(p, batch, stream);
}
