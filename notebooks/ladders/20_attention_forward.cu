// Attention forward with tcgen05, arranged as FlashAttention 4: y = softmax(q @ k.T * scale) @ v.
// A CTA computes two tiles of 128 queries, which take turns at the tensor cores: while the MMA warp
// multiplies one tile, a softmax warpgroup works on the other, one query per thread. A correction
// warpgroup rescales O where a row's maximum has grown, so that softmax never waits for P @ v.
// q, k, v, y [heads, seqlen, 128] bfloat16; seqlen is a multiple of 256.
//
// From FlashAttention 4: the two query tiles, the correction warpgroup, rescaling only where the
// maximum has grown by more than 2^8, and a polynomial for a quarter of the exponentials. Left out:
// causal masks and their order of tiles, P in parts, a persistent grid, pairs of CTAs, TMA stores.
//
// Tensor memory: S of both tiles, then O of both. P, in bfloat16, overwrites S.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kTile = 128, kHeadDim = 128, kBoxColumns = 64, kStages = 3;
constexpr int kWarpgroup = 128;  // threads; warpgroups: two of softmax, correction, TMA and MMA
constexpr int kCorrection = 2, kProducerThread = 3 * kWarpgroup, kMmaThread = kProducerThread + 32;
constexpr int kThreads = 4 * kWarpgroup;
// A row's maximum is renewed, and O rescaled, only where it has grown by more than 2^8: until then
// P is at most 2^8, and float32 sums do not overflow.
constexpr float kRescaleThreshold = 8;

struct Tile {
    __nv_bfloat16 boxes[kHeadDim / kBoxColumns][kTile * kBoxColumns];
};
struct Shared {
    Tile q[2], stages[kStages];
    float factors[2][kTile];  // that rescale the rows of O; in the end the rows' sums
    uint64_t q_full, full[kStages], empty[kStages];
    // Of each query tile: S = q @ k.T is complete, P is stored, O is rescaled, O += P @ v is
    // complete; the factors are written, are read.
    uint64_t s_full[2], p_full[2], o_rescaled[2], o_full[2], factors_full[2], factors_empty[2];
    uint32_t tmem;  // address of tensor memory, all 512 columns
};
constexpr int kSharedBytes = sizeof(Shared) + 1024;  // the kernel aligns it to 1024 bytes

__device__ uint32_t smem_address(const void* shared) {
    return uint32_t(__cvta_generic_to_shared(shared));
}

__device__ void init_barrier(uint64_t* barrier, int arrivals) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(arrivals)
        : "memory");
}

__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "@!ended bra again;\n"
        "}" ::"r"(smem_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(barrier))
                 : "memory");
}

__device__ void expect_bytes(uint64_t* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)),
        "r"(bytes)
        : "memory");
}

// Loads a tile as two boxes of 64 columns.
__device__ void tma_load(Tile& to, const CUtensorMap& map, int row, uint64_t* barrier) {
    expect_bytes(barrier, sizeof(Tile));
    for (int i = 0; i < kHeadDim / kBoxColumns; i++)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3}], [%4];" ::"r"(smem_address(to.boxes[i])),
            "l"(&map), "r"(i * kBoxColumns), "r"(row), "r"(smem_address(barrier))
            : "memory");
}

// Shared memory descriptor: 128-byte swizzle, 1024 bytes from 8 rows to the next 8, and from a box
// to the next where k runs along the rows of the tile (v).
__device__ uint64_t smem_descriptor(const Tile& tile) {
    return uint64_t(smem_address(&tile) >> 4 & 0x3fff) |
           uint64_t(sizeof(tile.boxes[0]) >> 4) << 16 | uint64_t(1024 >> 4) << 32 | 1ull << 46 |
           2ull << 61;
}

// Instruction descriptors: D float32, A and B bfloat16; N / 8 and M / 16. v is MN-major (bit 16).
constexpr uint32_t kDescriptorQK = 1 << 4 | 1 << 7 | 1 << 10 | kTile / 8 << 17 | kTile / 16 << 24;
constexpr uint32_t kDescriptorPV =
    1 << 4 | 1 << 7 | 1 << 10 | 1 << 16 | kHeadDim / 8 << 17 | kTile / 16 << 24;

// S = q @ k.T, a K of 16 columns, 32 bytes, at a time.
__device__ void mma_qk(uint32_t s, const Tile& q, const Tile& k) {
    for (int k_block = 0; k_block < kHeadDim / 16; k_block++) {
        const int off = k_block / 4 * int(sizeof(q.boxes[0]) >> 4) + k_block % 4 * 2;
        asm volatile(
            "{\n"
            ".reg .pred accumulate;\n"
            "setp.ne.b32 accumulate, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, accumulate;\n"
            "}" ::"r"(s),
            "l"(smem_descriptor(q) + off), "l"(smem_descriptor(k) + off), "r"(kDescriptorQK),
            "r"(k_block)
            : "memory");
    }
}

// O += P @ v with P in tensor memory, a K of 16 keys at a time: 8 columns of P, 16 rows of v.
__device__ void mma_pv(uint32_t o, uint32_t p, const Tile& v, bool accumulate) {
    for (int k_block = 0; k_block < kTile / 16; k_block++)
        asm volatile(
            "{\n"
            ".reg .pred accumulate;\n"
            "setp.ne.b32 accumulate, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, accumulate;\n"
            "}" ::"r"(o),
            "r"(p + k_block * 8), "l"(smem_descriptor(v) + k_block * (16 * 128 >> 4)),
            "r"(kDescriptorPV), "r"(int(accumulate || k_block))
            : "memory");
}

// Arrives once at the barrier when all MMAs issued so far are complete.
__device__ void commit(uint64_t* barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
            smem_address(barrier))
        : "memory");
}

#define EIGHT(f, i) f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7)
#define VALUE(i) "=f"(values[i])

// Loads 32 columns of the thread's row.
__device__ void tmem_load(float (&values)[32], uint32_t from) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 "
        "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : EIGHT(VALUE, 0), EIGHT(VALUE, 8), EIGHT(VALUE, 16), EIGHT(VALUE, 24)
        : "r"(from));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

#define PACKED(i) "r"(packed[i])

// Stores 16 columns of the thread's row.
__device__ void tmem_store(uint32_t to, const uint32_t (&packed)[16]) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x16.b32 [%16], "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15};" ::EIGHT(
            PACKED, 0),
        EIGHT(PACKED, 8), "r"(to)
        : "memory");
}
__device__ void wait_for_tmem_stores() {
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}
__device__ void fence_before_sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ void fence_after_sync() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// 2^x for x <= 8 with FMAs: 2^floor(x) in the exponent bits times a polynomial of degree 3 in
// x - floor(x). The special function units, which compute exp2f, are the bottleneck of softmax.
__device__ float exp2_polynomial(float x) {
    x = fmaxf(x, -126);
    const float whole = floorf(x), fraction = x - whole;
    const float power =
        1 + fraction * (0.695146143f + fraction * (0.227564394f + fraction * 0.077119090f));
    return __int_as_float(__float_as_int(power) + (int(whole) << 23));
}

// Turns a query's row of S into its row of P; the first word of P has keys 0 and 1.
__device__ void softmax(Shared& shared, int tile, int steps, uint32_t s, float scale) {
    uint64_t *const full = &shared.factors_full[tile], *const empty = &shared.factors_empty[tile];
    float* const factor = &shared.factors[tile][threadIdx.x % kWarpgroup];
    float row_max = -INFINITY, row_sum = 0;  // the maximum in units of log2
    for (int step = 0; step < steps; step++) {
        wait(&shared.s_full[tile], step % 2);
        fence_after_sync();
        float scores[32], tile_max = -INFINITY;
#pragma unroll 1
        for (int column = 0; column < kTile; column += 32) {
            tmem_load(scores, s + column);
#pragma unroll
            for (int i = 0; i < 32; i++) tile_max = fmaxf(tile_max, scores[i]);
        }
        tile_max *= scale;
        const float old_max = row_max;
        if (tile_max > row_max + kRescaleThreshold) row_max = tile_max;
        const float rescale = exp2f(old_max - row_max);  // 0 in the first step
        wait(empty, (step + 1) % 2);
        *factor = rescale;
        arrive(full);
        row_sum *= rescale;
#pragma unroll 1
        for (int column = 0; column < kTile; column += 32) {
            tmem_load(scores, s + column);
            uint32_t packed[16];
#pragma unroll
            for (int i = 0; i < 32; i += 2) {
                const float p0 = exp2f(scores[i] * scale - row_max);
                const float exponent = scores[i + 1] * scale - row_max;
                const float p1 = i % 4 ? exp2f(exponent) : exp2_polynomial(exponent);
                row_sum += p0 + p1;
                const __nv_bfloat162 pair = __floats2bfloat162_rn(p0, p1);
                packed[i / 2] = reinterpret_cast<const uint32_t&>(pair);
            }
            tmem_store(s + column / 2, packed);  // P overwrites columns of S that were read
        }
        wait_for_tmem_stores();
        fence_before_sync();
        arrive(&shared.p_full[tile]);
    }
    wait(empty, (steps + 1) % 2);
    *factor = row_sum;
    arrive(full);
}

// Rescales the rows of O whose maximum has grown; in the end divides them by their sums.
__device__ void correction(Shared& shared, int steps, uint32_t o, __nv_bfloat16* y) {
    const int row = threadIdx.x % kWarpgroup;
    float values[32];
    for (int step = 0; step < steps; step++)
        for (int tile = 0; tile < 2; tile++) {
            wait(&shared.factors_full[tile], step % 2);
            const float factor = shared.factors[tile][row];
            arrive(&shared.factors_empty[tile]);
            if (step) wait(&shared.o_full[tile], (step - 1) % 2);
            fence_after_sync();
            if (step && __any_sync(~0u, factor != 1))
#pragma unroll 1
                for (int column = 0; column < kHeadDim; column += 32) {
                    const uint32_t at = o + tile * kHeadDim + column;
                    tmem_load(values, at);
#pragma unroll
                    for (int half = 0; half < 32; half += 16) {
                        uint32_t packed[16];
                        for (int i = 0; i < 16; i++)
                            packed[i] = __float_as_uint(values[half + i] * factor);
                        tmem_store(at + half, packed);
                    }
                    wait_for_tmem_stores();
                }
            fence_before_sync();
            arrive(&shared.o_rescaled[tile]);
        }
    for (int tile = 0; tile < 2; tile++) {
        wait(&shared.factors_full[tile], steps % 2);
        const float factor = 1 / shared.factors[tile][row];
        wait(&shared.o_full[tile], (steps - 1) % 2);
        fence_after_sync();
#pragma unroll 1
        for (int column = 0; column < kHeadDim; column += 32) {
            tmem_load(values, o + tile * kHeadDim + column);
            uint32_t packed[16];
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const __nv_bfloat162 pair =
                    __floats2bfloat162_rn(values[2 * i] * factor, values[2 * i + 1] * factor);
                packed[i] = reinterpret_cast<const uint32_t&>(pair);
            }
            auto* const to =
                reinterpret_cast<uint4*>(&y[size_t(tile * kTile + row) * kHeadDim + column]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[i] = make_uint4(
                    packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
        }
    }
}

// The current stage of the pipeline, and the phase of its barriers.
struct PipelineState {
    int index = 0, phase = 0;
    __device__ void advance() {
        if (++index == kStages) index = 0, phase ^= 1;
    }
};

__global__ void __launch_bounds__(kThreads) attention_forward_kernel(
    const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
    const __grid_constant__ CUtensorMap map_v, __nv_bfloat16* y, int seqlen, float scale) {
    extern __shared__ char memory[];
    Shared& shared =
        *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    const int first_key = blockIdx.y * seqlen, first_query = first_key + blockIdx.x * 2 * kTile;
    const int warpgroup = threadIdx.x / kWarpgroup, steps = seqlen / kTile;

    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(
                         smem_address(&shared.tmem))
                     : "memory");
    if (threadIdx.x == 0) {
        init_barrier(&shared.q_full, 2);
        for (int i = 0; i < kStages; i++) {
            init_barrier(&shared.full[i], 1);
            init_barrier(&shared.empty[i], 1);
        }
        for (int i = 0; i < 2; i++) {
            init_barrier(&shared.s_full[i], 1);
            init_barrier(&shared.p_full[i], kWarpgroup);
            init_barrier(&shared.o_rescaled[i], kWarpgroup);
            init_barrier(&shared.o_full[i], 1);
            init_barrier(&shared.factors_full[i], kWarpgroup);
            init_barrier(&shared.factors_empty[i], kWarpgroup);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    fence_before_sync();
    __syncthreads();
    fence_after_sync();
    const uint32_t tmem = shared.tmem, lanes = threadIdx.x % kWarpgroup / 32 * 32 << 16;
    PipelineState stage;

    if (warpgroup < kCorrection) {
        softmax(shared, warpgroup, steps, tmem + warpgroup * kTile + lanes, scale);
    } else if (warpgroup == kCorrection) {
        correction(shared, steps, tmem + 2 * kTile + lanes, y + size_t(first_query) * kHeadDim);
    } else {
        if (threadIdx.x == kProducerThread) {
            for (int tile = 0; tile < 2; tile++)
                tma_load(shared.q[tile], map_q, first_query + tile * kTile, &shared.q_full);
            for (int i = 0; i < 2 * steps; i++, stage.advance()) {  // k and v alternate
                wait(&shared.empty[stage.index], stage.phase ^ 1);
                tma_load(shared.stages[stage.index], i % 2 ? map_v : map_k,
                         first_key + i / 2 * kTile, &shared.full[stage.index]);
            }
        } else if (threadIdx.x == kMmaThread) {
            const auto qk = [&](int tile, const Tile& k) {
                mma_qk(tmem + tile * kTile, shared.q[tile], k);
                commit(&shared.s_full[tile]);
            };
            wait(&shared.q_full, 0);
            wait(&shared.full[0], 0);
            qk(0, shared.stages[0]);
            qk(1, shared.stages[0]);
            commit(&shared.empty[0]);
            stage.advance();
            for (int step = 0; step < steps; step++) {
                const int v = stage.index;
                wait(&shared.full[v], stage.phase);
                stage.advance();
                const int k = stage.index;  // of the next step
                for (int tile = 0; tile < 2; tile++) {
                    wait(&shared.p_full[tile], step % 2);
                    wait(&shared.o_rescaled[tile], step % 2);
                    fence_after_sync();
                    mma_pv(tmem + 2 * kTile + tile * kHeadDim, tmem + tile * kTile,
                           shared.stages[v], step > 0);
                    commit(&shared.o_full[tile]);
                    if (tile == 1) commit(&shared.empty[v]);
                    if (step + 1 == steps) continue;
                    if (tile == 0) wait(&shared.full[k], stage.phase);
                    qk(tile, shared.stages[k]);  // overwrites P, after P @ v: MMAs execute in order
                    if (tile == 1) commit(&shared.empty[k]);
                }
                stage.advance();
            }
        }
        __syncwarp();
    }
    fence_before_sync();
    __syncthreads();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 512;" ::"r"(tmem));
}

// The TMA descriptor of a matrix [heads * seqlen, kHeadDim], for boxes of kTile x kBoxColumns.
CUresult make_tensor_map(CUtensorMap* map, const __nv_bfloat16* matrix, int rows) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!function) return CUDA_ERROR_NOT_FOUND;
    const cuuint64_t extents[] = {kHeadDim, cuuint64_t(rows)}, strides[] = {2 * kHeadDim};
    const cuuint32_t box[] = {kBoxColumns, kTile}, element_strides[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(matrix), extents,
        strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace

// scale: multiplies the scores, as in 1 / sqrt(128).
extern "C" cudaError_t attention_forward(const __nv_bfloat16* q, const __nv_bfloat16* k,
                                         const __nv_bfloat16* v, __nv_bfloat16* y, int heads,
                                         int seqlen, float scale) {
    if (seqlen % (2 * kTile)) return cudaErrorInvalidValue;
    CUtensorMap map_q, map_k, map_v;
    const int rows = heads * seqlen;
    if (make_tensor_map(&map_q, q, rows) || make_tensor_map(&map_k, k, rows) ||
        make_tensor_map(&map_v, v, rows))
        return cudaErrorInvalidValue;
    const float log2_e = 1.4426950408889634f;
    cudaFuncSetAttribute(
        attention_forward_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    attention_forward_kernel<<<dim3(seqlen / (2 * kTile), heads), kThreads, kSharedBytes>>>(
        map_q, map_k, map_v, y, seqlen, scale * log2_e);
    return cudaGetLastError();
}
