// The version of matmul by wgmma for floats, rounded to tf32, on GPUs of compute capability 9.0.
#pragma once

#include "matmul_mma.cuh"
#include "matmul_split.cuh"
#include "wgmma_tf32.cuh"

// wgmma takes floats as they lie in memory, but rounds them towards zero, and it takes them by row
// alone. An x by row passes through registers, where each element is rounded to the nearest tf32 on
// its way from a tile to the product. w has to be in shared memory as it is: so it is copied first,
// rounded and by row, and so is an x by column. A copy moves 8 bytes for each element: of a matrix
// of 8192 x 8192 that takes an H100's memory 0.19 ms, and the product of two of them 3 ms.

constexpr int kTf32Depth = kTileRow / sizeof(float);  // of k, in a line of a tile

// ---- copies, whose rows end with zeros, so that they are whole lines of tiles

inline __host__ __device__ int64_t copied_depth(int64_t depth) {
    return ceil_div<int64_t>(depth, kTf32Depth) * kTf32Depth;
}

constexpr int kCopySide = 64, kCopyThreads = 256;

// A block has 64 x 64 elements of `rows` rows. Where they are by column in memory, it turns them
// round in shared memory.
template <bool by_row>
__global__ void __launch_bounds__(kCopyThreads) round_to_tf32(Operand<float> from, float* to,
                                                              int64_t rows, int64_t depth) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    constexpr int V = kVec<float>, kPieces = kCopySide / V,
                  kEachThread = kPieces * kCopySide / kCopyThreads;
    constexpr int kApart =
        kCopySide / kEachThread;  // lines from one of a thread's pieces to the next
    __shared__ float turned[by_row ? 1 : kCopySide][kCopySide + 1];
    const int64_t copied = copied_depth(depth);
    const int64_t across = ceil_div<int64_t>(copied, kCopySide),
                  down = ceil_div<int64_t>(rows, kCopySide);
    const int64_t matrix = blockIdx.x / across / down;
    const int64_t first_row = blockIdx.x / across % down * kCopySide;
    const int64_t first_k = blockIdx.x % across * kCopySide;
    const int line = threadIdx.x / kPieces, piece = threadIdx.x % kPieces * V;

    Vec<float, V> all[kEachThread];
#pragma unroll
    for (int n = 0; n < kEachThread; ++n) {
        const int l = line + n * kApart;
        const int64_t row = first_row + (by_row ? l : piece), k = first_k + (by_row ? piece : l);
        const int64_t left = row < rows && k < depth ? (by_row ? depth - k : rows - row) : 0;
        const float* const from_here = at(from, matrix, row, k);
        all[n] = left >= V ? load<V>(from_here) : Vec<float, V>{};
        for (int i = 0; i < V; ++i) {
            if (left < V && i < left) all[n][i] = from_here[i];
            all[n][i] = __uint_as_float(rounded_to_tf32(__float_as_uint(all[n][i])));
        }
    }
    if constexpr (!by_row) {
#pragma unroll
        for (int n = 0; n < kEachThread; ++n)
            for (int i = 0; i < V; ++i) turned[piece + i][line + n * kApart] = all[n][i];
        __syncthreads();
#pragma unroll
        for (int n = 0; n < kEachThread; ++n)
            for (int i = 0; i < V; ++i) all[n][i] = turned[line + n * kApart][piece + i];
    }
#pragma unroll
    for (int n = 0; n < kEachThread; ++n) {
        const int64_t row = first_row + line + n * kApart, k = first_k + piece;
        if (row < rows && k < copied) store(to + (matrix * rows + row) * copied + k, all[n]);
    }
#endif
}

// ---- the product, as the version `stores` has it: blocks that stay, in which one warpgroup asks
// TMA for tiles and two multiply them, and TMA stores y.
// Flaw: the tensor cores have nothing to do while w is copied.

template <int columns>
struct Tf32Plan {
    static constexpr int kColumns = columns, kStages = columns == 256 ? 4 : 6;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    struct Stage {
        float x[kTileRows * kTf32Depth], w[columns * kTf32Depth];
    };
    using Shared = StagesAndBoxes<Stage, kStages>;
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

#if HAS_WGMMA

// Four products' worth of x for a warp: 16 rows, and 8 of k each.
using Tf32Fragments = uint32_t[kTf32Depth / 8][4];

// Begins the products over a stage, of a warp's 16 rows of x from r on. The fragments are needed
// until the products are done.
template <int N>
__device__ void multiply_tf32(float (&sums)[N], Tf32Fragments& a, const float* x, int r,
                              const float* w, bool adds) {
    const uint64_t of_w = wgmma_descriptor(w);
#pragma unroll
    for (int k = 0; k < kTf32Depth / 8; ++k)
        load_matrices<float, true>(
            a[k], reinterpret_cast<const char*>(x), r, 8, false, k * 2 * kVecBytes);
    tma_writes_done();  // and reads: TMA may write again once this warp says that it has read
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTf32Depth / 8; ++k) wgmma_tf32(sums, a[k], of_w + k * 2, adds || k > 0);
    wgmma_commit();
}

// Stores scale * sums by TMA, 32 columns at a time. turn: counts them.
template <int N>
__device__ void store_floats(const float (&sums)[N], float scale, Boxes& boxes,
                             const CUtensorMap& map, int matrix, int row, int unit, int group,
                             int& turn) {
    const bool first = threadIdx.x % kWarpgroup == 0;
#pragma unroll
    for (int n = 0; n < N; n += 16, unit += kChunk) {
        char* const box = reinterpret_cast<char*>(boxes.chunks[turn++ % 2]);
        if (first) tma_store_wait_read<1>();  // what this box held before is stored
        warpgroup_barrier(group);
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            const float two[] = {scale * sums[n + i], scale * sums[n + i + 1]};
            store(
                reinterpret_cast<float*>(box + swizzled(row_of_sum(i), 4 * column_of_sum(i))), two);
        }
        tma_writes_done();
        warpgroup_barrier(group);
        if (first) tma_store(map, box, unit, row, matrix);
    }
}

#endif

template <class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    matmul_tf32(const __grid_constant__ Maps maps, Product<float> p, TileOrder order, Split split,
                int shares, bool stores) {
#if HAS_WGMMA
    constexpr int kColumns = Plan::kColumns, kWarps = kWarpgroup / kWarp;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const int steps = int(ceil_div<int64_t>(p.depth, kTf32Depth));
    const int group = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) init_stages(shared, kConsumers * kWarps);
    __syncthreads();

    const auto steps_of = [&](int n) { return n >= split.whole ? split.steps : steps; };
    Ring<Plan::kStages> ring;
    TilePlace place;
    int first;  // step of a share
    if (group == kConsumers) {
        give_registers<40>();
        for (int n = blockIdx.x; thread == 0 && n < shares; n += gridDim.x) {
            order.at(split.tile(n, first), 0, place);
            const int row = int(place.row) * kTileRows, matrix = int(place.matrix);
            const auto columns = TileRows<kColumns>::of_w(p, place.column);
            for (int step = first; step < first + steps_of(n); ++step, ring.next()) {
                auto& [x, w] = shared.stages[ring.stage];
                Mbarrier& full = shared.full[ring.stage];
                const int k = step * kTf32Depth;
                shared.empty[ring.stage].wait((ring.round + 1) % 2);
                full.arrive_expect_tx(sizeof(x) + sizeof(w));
                tma_load(x, maps.x, k, row, matrix, full);
                for (int half = 0; half < 2; ++half)
                    tma_load(w + half * (kColumns / 2) * kTf32Depth, maps.w, k,
                             int(columns.first[half]), matrix, full);
            }
        }
        return;
    }
    take_registers<232>();
    const int r = group * 64 + thread / kWarp * 16;
    int stored = 0;
    for (int n = blockIdx.x; n < shares; n += gridDim.x) {
        const int of_share = steps_of(n);
        float sums[kColumns / 2];
        Tf32Fragments even, odd;  // one is loaded while the tensor cores have the other
        int before = 0;
        const auto done = [&](int stage) {  // this warp has read it
            if (thread % kWarp == 0) shared.empty[stage].arrive();
        };
        const auto multiply = [&](Tf32Fragments& a, int step) {
            const auto& stage = shared.stages[ring.stage];
            shared.full[ring.stage].wait(ring.round % 2);
            multiply_tf32(sums, a, stage.x, r, stage.w, step > 0);
            wgmma_wait<1>();  // the products of the step before are done
            if (step > 0) done(before);
            before = ring.stage;
            ring.next();
        };
        for (int step = 0; step < of_share; step += 2) {
            multiply(even, step);
            if (step + 1 < of_share) multiply(odd, step + 1);
        }
        wgmma_wait<0>();
        done(before);
        if (n >= split.whole) {
            put_part(p.parts + int64_t(n - split.whole) * (kTileRows * kColumns), sums, threadIdx.x,
                     kConsumers * kWarpgroup);
            continue;
        }
        order.at(split.tile(n, first), 0, place);
        const int row = int(place.row) * kTileRows + group * 64;
        const int unit = int(place.column) * (kColumns / halves(p));
        if (stores) {
            store_floats(sums, p.scale, shared.boxes[group], maps.y, int(place.matrix), row, unit,
                         group, stored);
        } else {
            finish(sums, p, shared.boxes[group], place.matrix, row, unit, group);
        }
    }
    if (stores && thread == 0) tma_store_wait();
#endif
}

// ---- launches: of T = float alone, and templates, so that a build of another type's kernels has
// none of these

// Whether mma is faster: where both are by row, it reads each element of w once, if a row of tiles
// has all rows of x and is enough for all multiprocessors.
inline bool is_for_mma(const Product<float>& p) {
    return p.x.col == 1 && p.w.col == 1 && p.rows <= kTileRows &&
           TileGrid(p, kTileRows, 128).tiles() >= multiprocessors();
}

// Elements of room for the copies; 0 if this GPU, or how x and w lie in memory, is not for them, if
// copies would be zeros for the most part, or if mma is faster.
template <class T>
int64_t tf32_copies(const Product<T>& p) {
    using Plan = Tf32Plan<256>;
    const int64_t wide = p.units * halves(p);
    if (!has_wgmma(matmul_tf32<Plan>, Plan::kThreads) || Plan::kBytes > shared_bytes()) return 0;
    if (!fits_tma(p) || TileGrid(p, kTileRows, 128).tiles() > 0x3fffffff) return 0;
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w)) return 0;
    if (p.depth < kTf32Depth || is_for_mma(p)) return 0;
    if (p.act == kSwiglu && p.w.col != 1 && p.units % kVec<float> != 0) return 0;
    return p.batch * (wide + (p.x.col == 1 ? 0 : p.rows)) * copied_depth(p.depth);
}

// Copies `rows` rows of each matrix to where they are from then on.
template <class T>
void copy_rounded(Operand<T>& of, T* to, const Product<T>& p, int64_t rows, cudaStream_t stream) {
    const int64_t copied = copied_depth(p.depth);
    const int64_t blocks =
        p.batch * ceil_div<int64_t>(rows, kCopySide) * ceil_div<int64_t>(copied, kCopySide);
    const auto kernel = of.col == 1 ? round_to_tf32<true> : round_to_tf32<false>;
    kernel<<<blocks, kCopyThreads, 0, stream>>>(of, to, rows, p.depth);
    of = {to, rows * copied, copied, 1};
}

// Floats that a product leaves for a second kernel; 0 where its depth is not split.
template <class T>
int64_t tf32_split_floats(const Product<T>& p) {
    const bool has_steps = p.depth >= kLeastSteps * kTf32Depth;
    return has_steps && !adds_to_y(p) && tf32_copies(p) > 0 ? split_plan(p).floats() : 0;
}

template <class Plan>
bool launch_tf32_plan(const Product<float>& p, const Split& split, cudaStream_t stream) {
    const int64_t wide = p.units * halves(p);
    const auto map = [&](CUtensorMap& to, const Operand<float>& of, int64_t rows, int high) {
        return make_tensor_map(to, of.data, p.batch, rows, p.depth, of.matrix, of.row, high);
    };
    Maps maps;
    if (!map(maps.x, p.x, p.rows, kTileRows) || !map(maps.w, p.w, wide, Plan::kColumns / 2))
        return false;
    const bool stores =
        is_plain(p) && is_aligned(p.y) && p.units % kVec<float> == 0 &&
        make_tensor_map(maps.y, p.y, p.batch, p.rows, p.units, p.rows * p.units, p.units, 64);
    const auto kernel = matmul_tf32<Plan>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const TileOrder order(TileGrid(p, kTileRows, Plan::kColumns), 1, kHigh);
    const int shares = split.shares(order.places()), blocks = smaller(shares, multiprocessors());
    kernel<<<blocks, Plan::kThreads, Plan::kBytes, stream>>>(maps, p, order, split, shares, stores);
    if (split.others > 0) launch_add_parts<Plan::kColumns>(p, split, stream);
    return true;
}

// False: TMA cannot describe x or w.
template <class T>
bool launch_tf32(Product<T> p, cudaStream_t stream) {
    const int64_t wide = p.units * halves(p);
    copy_rounded(p.w, p.copies, p, wide, stream);
    if (p.x.col != 1)
        copy_rounded(p.x, p.copies + p.batch * wide * copied_depth(p.depth), p, p.rows, stream);
    const SplitPlan plan = p.parts ? split_plan(p) : SplitPlan{is_for_narrow_tiles(p) ? 128 : 256};
    return plan.columns == 128 ? launch_tf32_plan<Tf32Plan<128>>(p, plan.split, stream)
                               : launch_tf32_plan<Tf32Plan<256>>(p, plan.split, stream);
}
