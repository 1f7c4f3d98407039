// The tf32 version of matmul: float by wgmma, on GPUs of compute capability 9.0.
#pragma once

#include "matmul_mma.cuh"
#include "matmul_split_k.cuh"
#include "wgmma_tf32.cuh"

// wgmma truncates floats to tf32, and takes operands in shared memory by row only. An x by row
// passes through registers, where each element is rounded to the nearest tf32. w has to be in
// shared memory as it is, so it is first copied to memory, rounded and by row; and so is an x by
// column. A copy moves 8 bytes per element: for a matrix of 8192 x 8192 that takes an H100 0.19 ms,
// and the product of two such matrices 3 ms.

constexpr int kTf32Depth = kTileRow / sizeof(float);  // of k, in a line of a tile

// ---- rounded copies. Their rows are padded with zeros to whole lines of tiles.

inline __host__ __device__ int64_t copied_depth(int64_t depth) {
    return ceil_div<int64_t>(depth, kTf32Depth) * kTf32Depth;
}

constexpr int kCopySide = 64, kCopyThreads = 256;

// A block copies 64 x 64 elements. If they are by column in memory, it transposes them in shared
// memory.
template <bool by_row>
__global__ void __launch_bounds__(kCopyThreads) round_to_tf32(Operand<float> from, float* to,
                                                              int64_t rows, int64_t depth) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    constexpr int V = kVec<float>, kPieces = kCopySide / V,
                  kEachThread = kPieces * kCopySide / kCopyThreads;
    constexpr int kLineStride = kCopySide / kEachThread;  // lines between the pieces of a thread
    __shared__ float transposed[by_row ? 1 : kCopySide][kCopySide + 1];
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
        const int l = line + n * kLineStride;
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
            for (int i = 0; i < V; ++i) transposed[piece + i][line + n * kLineStride] = all[n][i];
        __syncthreads();
#pragma unroll
        for (int n = 0; n < kEachThread; ++n)
            for (int i = 0; i < V; ++i) all[n][i] = transposed[line + n * kLineStride][piece + i];
    }
#pragma unroll
    for (int n = 0; n < kEachThread; ++n) {
        const int64_t row = first_row + line + n * kLineStride, k = first_k + piece;
        if (row < rows && k < copied) store(to + (matrix * rows + row) * copied + k, all[n]);
    }
#endif
}

// ---- the product, as the version `stores` computes it: persistent blocks with one producer
// warpgroup and two consumers; TMA stores y.
// Flaw: the tensor cores idle while w is copied.

template <int columns>
struct Tf32Plan {
    static constexpr int kColumns = columns, kStages = columns == 256 ? 4 : 6;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    struct Stage {
        float x[kTileRows * kTf32Depth], w[columns * kTf32Depth];
    };
    using Shared = PipelineStorage<Stage, kStages>;
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

#if HAS_WGMMA

// The fragments of x for a warp in one stage: 16 rows, 8 of k each.
using Tf32Fragments = uint32_t[kTf32Depth / 8][4];

// Issues the products of a stage for the 16 rows of a warp from r on. The fragments must not change
// until the products are complete.
template <int N>
__device__ void multiply_tf32(float (&accum)[N], Tf32Fragments& a, const float* x, int r,
                              const float* w, bool adds) {
    const uint64_t of_w = wgmma_descriptor(w);
#pragma unroll
    for (int k = 0; k < kTf32Depth / 8; ++k)
        load_matrices<float, true>(
            a[k], reinterpret_cast<const char*>(x), r, 8, false, k * 2 * kVecBytes);
    tma_writes_done();  // orders the reads before the next TMA write
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTf32Depth / 8; ++k) wgmma_tf32(accum, a[k], of_w + k * 2, adds || k > 0);
    wgmma_commit();
}

// The epilogue for y = scale * accumulator: by TMA, 32 columns at a time. stored: counts the
// stores.
template <int N>
__device__ void epilogue_tma(const float (&accum)[N], float scale, EpilogueBuffers& buffers,
                             const CUtensorMap& map, int matrix, int row, int unit, int group,
                             int& stored) {
    const bool first = threadIdx.x % kWarpgroup == 0;
#pragma unroll
    for (int n = 0; n < N; n += 16, unit += kChunk) {
        char* const box = reinterpret_cast<char*>(buffers.chunks[stored++ % 2]);
        if (first) tma_store_wait_read<1>();  // the buffer is free
        warpgroup_barrier(group);
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            const float two[] = {scale * accum[n + i], scale * accum[n + i + 1]};
            store(reinterpret_cast<float*>(box + swizzled(accum_row(i), 4 * accum_column(i))), two);
        }
        tma_writes_done();
        warpgroup_barrier(group);
        if (first) tma_store(map, box, unit, row, matrix);
    }
}

#endif

template <class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    matmul_tf32(const __grid_constant__ Maps maps, Product<float> p, TileScheduler scheduler,
                SplitK split_k, int work_units, bool stores) {
#if HAS_WGMMA
    constexpr int kColumns = Plan::kColumns, kWarps = kWarpgroup / kWarp;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const int steps = int(ceil_div<int64_t>(p.depth, kTf32Depth));
    const int group = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) init_pipeline(shared, kConsumers * kWarps);
    __syncthreads();

    const auto steps_of = [&](int n) { return n >= split_k.whole ? split_k.steps : steps; };
    PipelineState<Plan::kStages> pipe;
    TilePlace place;
    int first;  // step of a work unit
    if (group == kConsumers) {
        warpgroup_reg_dealloc<40>();
        for (int n = blockIdx.x; thread == 0 && n < work_units; n += gridDim.x) {
            scheduler.at(split_k.tile(n, first), 0, place);
            const int row = int(place.row) * kTileRows, matrix = int(place.matrix);
            const auto columns = TileRows<kColumns>::of_w(p, place.column);
            for (int step = first; step < first + steps_of(n); ++step, pipe.next()) {
                auto& [x, w] = shared.stages[pipe.stage];
                Mbarrier& full = shared.full[pipe.stage];
                const int k = step * kTf32Depth;
                shared.empty[pipe.stage].wait((pipe.phase + 1) % 2);
                full.arrive_expect_tx(sizeof(x) + sizeof(w));
                tma_load(x, maps.x, k, row, matrix, full);
                for (int half = 0; half < 2; ++half)
                    tma_load(w + half * (kColumns / 2) * kTf32Depth, maps.w, k,
                             int(columns.first[half]), matrix, full);
            }
        }
        return;
    }
    warpgroup_reg_alloc<232>();
    const int r = group * 64 + thread / kWarp * 16;
    int stored = 0;
    for (int n = blockIdx.x; n < work_units; n += gridDim.x) {
        const int unit_steps = steps_of(n);
        float accum[kColumns / 2];
        Tf32Fragments even, odd;  // double buffering
        int before = 0;
        const auto release = [&](int stage) {  // per warp
            if (thread % kWarp == 0) shared.empty[stage].arrive();
        };
        const auto multiply = [&](Tf32Fragments& a, int step) {
            const auto& stage = shared.stages[pipe.stage];
            shared.full[pipe.stage].wait(pipe.phase % 2);
            multiply_tf32(accum, a, stage.x, r, stage.w, step > 0);
            wgmma_wait<1>();  // the previous step is complete
            if (step > 0) release(before);
            before = pipe.stage;
            pipe.next();
        };
        for (int step = 0; step < unit_steps; step += 2) {
            multiply(even, step);
            if (step + 1 < unit_steps) multiply(odd, step + 1);
        }
        wgmma_wait<0>();
        release(before);
        if (n >= split_k.whole) {
            store_partial(p.workspace + int64_t(n - split_k.whole) * (kTileRows * kColumns), accum,
                          threadIdx.x, kConsumers * kWarpgroup);
            continue;
        }
        scheduler.at(split_k.tile(n, first), 0, place);
        const int row = int(place.row) * kTileRows + group * 64;
        const int unit = int(place.column) * (kColumns / rows_per_unit(p));
        if (stores) {
            epilogue_tma(accum, p.scale, shared.epilogue[group], maps.y, int(place.matrix), row,
                         unit, group, stored);
        } else {
            epilogue(accum, p, shared.epilogue[group], place.matrix, row, unit, group);
        }
    }
    if (stores && thread == 0) tma_store_wait();
#endif
}

// ---- launches. Templates of T = float only, so that builds of other types contain none of these.

// Whether mma is faster. With both operands by row it reads each element of w once, if one row of
// tiles covers all rows of x and fills the multiprocessors.
inline bool is_for_mma(const Product<float>& p) {
    return p.x.col == 1 && p.w.col == 1 && p.rows <= kTileRows &&
           TileGrid(p, kTileRows, 128).tiles() >= multiprocessors();
}

// Elements that the copies need; 0 if this GPU or the layout of x and w does not allow them, if
// they would be mostly padding, or if mma is faster.
template <class T>
int64_t tf32_copies(const Product<T>& p) {
    using Plan = Tf32Plan<256>;
    const int64_t wide = p.units * rows_per_unit(p);
    if (!has_wgmma(matmul_tf32<Plan>, Plan::kThreads) || Plan::kBytes > shared_bytes()) return 0;
    if (!fits_tma(p) || TileGrid(p, kTileRows, 128).tiles() > 0x3fffffff) return 0;
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w)) return 0;
    if (p.depth < kTf32Depth || is_for_mma(p)) return 0;
    if (p.act == kSwiglu && p.w.col != 1 && p.units % kVec<float> != 0) return 0;
    return p.batch * (wide + (p.x.col == 1 ? 0 : p.rows)) * copied_depth(p.depth);
}

// Copies `rows` rows of each matrix to `to` and redirects the operand there.
template <class T>
void copy_rounded(Operand<T>& of, T* to, const Product<T>& p, int64_t rows, cudaStream_t stream) {
    const int64_t copied = copied_depth(p.depth);
    const int64_t blocks =
        p.batch * ceil_div<int64_t>(rows, kCopySide) * ceil_div<int64_t>(copied, kCopySide);
    const auto kernel = of.col == 1 ? round_to_tf32<true> : round_to_tf32<false>;
    kernel<<<blocks, kCopyThreads, 0, stream>>>(of, to, rows, p.depth);
    of = {to, rows * copied, copied, 1};
}

// Floats of the split-K workspace; 0 where the product is not split.
template <class T>
int64_t tf32_split_k_floats(const Product<T>& p) {
    const bool has_steps = p.depth >= kLeastSteps * kTf32Depth;
    return has_steps && !adds_to_y(p) && tf32_copies(p) > 0 ? split_k_plan(p).floats() : 0;
}

template <class Plan>
bool launch_tf32_plan(const Product<float>& p, const SplitK& split_k, cudaStream_t stream) {
    const int64_t wide = p.units * rows_per_unit(p);
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
    const TileScheduler scheduler(TileGrid(p, kTileRows, Plan::kColumns), 1, kGroupRows);
    const int work_units = split_k.work_units(scheduler.places()),
              blocks = smaller(work_units, multiprocessors());
    kernel<<<blocks, Plan::kThreads, Plan::kBytes, stream>>>(
        maps, p, scheduler, split_k, work_units, stores);
    if (split_k.split_tiles > 0) launch_split_k_reduce<Plan::kColumns>(p, split_k, stream);
    return true;
}

// False if TMA cannot describe x or w.
template <class T>
bool launch_tf32(Product<T> p, cudaStream_t stream) {
    const int64_t wide = p.units * rows_per_unit(p);
    copy_rounded(p.w, p.copies, p, wide, stream);
    if (p.x.col != 1)
        copy_rounded(p.x, p.copies + p.batch * wide * copied_depth(p.depth), p, p.rows, stream);
    const SplitKPlan plan =
        p.workspace ? split_k_plan(p) : SplitKPlan{is_for_narrow_tiles(p) ? 128 : 256};
    return plan.columns == 128 ? launch_tf32_plan<Tf32Plan<128>>(p, plan.split_k, stream)
                               : launch_tf32_plan<Tf32Plan<256>>(p, plan.split_k, stream);
}
