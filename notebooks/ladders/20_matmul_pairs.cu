// Rung 4: c = a @ b.T with tcgen05 on pairs of CTAs (cta_group::2). A pair computes a 256 x 256
// tile with one instruction: each CTA holds half of a's rows, half of b's, and the accumulator of
// its rows. A cluster is two pairs, one below the other. Both need the same tile of b: each CTA
// loads a quarter of it and multicasts it to the CTA of the other pair that needs it.
// a [m, k], b [n, k] bfloat16, c [m, n] float32; m is a multiple of 512, n of 256, k of 64.
//
// Flaw: threads store c row by row; a TMA store from shared memory would free them earlier.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kTileM = 128, kTileK = 64, kStages = 6, kAccumulators = 2, kClcStages = 3;
constexpr int kTileN = 256;                 // of c
constexpr int kMulticastRows = kTileN / 4;  // of b, that a CTA loads for itself and another
constexpr int kCluster = 4;  // CTAs 0 and 1 are a pair, 2 and 3 another; the even one leads
// The epilogue warpgroup comes first: warp w of a warpgroup can access lanes 32 w to 32 w + 31.
constexpr int kEpilogueThreads = 128, kProducerThread = 128, kMmaThread = 160,
              kSchedulerThread = 192, kThreads = 224;
constexpr int kClcConsumers = kEpilogueThreads / 32 + 3;  // of a CTA, a thread for each warp

struct Stage {
    __nv_bfloat16 a[kTileM * kTileK], b[kTileN / 2 * kTileK];
};
struct Shared {
    Stage stages[kStages];
    uint64_t full[kStages], empty[kStages];
    uint64_t tmem_full[kAccumulators], tmem_empty[kAccumulators];
    alignas(16) uint4 clc_responses[kClcStages];
    uint64_t clc_full[kClcStages], clc_empty[kClcStages];
    uint32_t accumulators;  // their tensor memory address; they take all 512 columns
};
constexpr int kSharedBytes = sizeof(Shared) + 1024;  // the kernel aligns it to 1024 bytes

__device__ uint32_t smem_address(const void* shared) {
    return uint32_t(__cvta_generic_to_shared(shared));
}

// The address of the same variable in another CTA of the cluster.
__device__ uint32_t cluster_address(const void* shared, int rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"(smem_address(shared)), "r"(rank));
    return there;
}

__device__ void init_barrier(uint64_t* barrier, int arrivals) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(arrivals)
        : "memory");
}

// Other CTAs arrive at these barriers: with cluster scope, what they wrote before is visible.
__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%0], %1;\n"
        "@!ended bra again;\n"
        "}" ::"r"(smem_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ void arrive_at(uint64_t* barrier, int rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     cluster_address(barrier, rank))
                 : "memory");
}

__device__ void expect_bytes(uint64_t* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)),
        "r"(bytes)
        : "memory");
}

__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// Loads a box to this CTA; completes on the barrier of the leader of its pair.
__device__ void tma_load(void* to, const CUtensorMap& map, int column, int row, uint64_t* barrier,
                         int leader) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(smem_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(cluster_address(barrier, leader))
        : "memory");
}

// Loads a box to every CTA of the mask; completes on the barriers of the leaders of their pairs.
__device__ void tma_load_multicast(int mask, void* to, const CUtensorMap& map, int column, int row,
                                   uint64_t* barrier, int leader) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.cta_group::2 [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(smem_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(cluster_address(barrier, leader)), "h"(uint16_t(mask))
        : "memory");
}

// Shared memory descriptor: K-major, 128-byte swizzle, 1024 bytes from 8 rows to the next 8.
__device__ uint64_t smem_descriptor(const __nv_bfloat16* tile) {
    return uint64_t(smem_address(tile) >> 4 & 0x3fff) | uint64_t(1024 >> 4) << 32 | 1ull << 46 |
           2ull << 61;
}

// Instruction descriptor: D float32, A and B bfloat16, both K-major; N / 8 and M / 16 of the pair.
constexpr uint32_t kInstructionDescriptor =
    1 << 4 | 1 << 7 | 1 << 10 | kTileN / 8 << 17 | 2 * kTileM / 16 << 24;

// Multiplies 256 x 16 elements of a by 256 x 16 of b, half of the rows in each CTA of the pair.
__device__ void mma(uint32_t accumulator, uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %4, 0;\n"
        "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, accumulate;\n"
        "}" ::"r"(accumulator),
        "l"(a), "l"(b), "r"(kInstructionDescriptor), "r"(int(accumulate))
        : "memory");
}

// Arrives once at the barrier of every CTA of the mask when all MMAs so far are complete.
__device__ void commit(uint64_t* barrier, int mask) {
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
        "[%0], %1;" ::"r"(smem_address(barrier)),
        "h"(uint16_t(mask))
        : "memory");
}

#define EIGHT(f, i) f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7)
#define VALUE(i) "=f"(values[i])

// Loads 32 columns of the thread's row of an accumulator.
__device__ void tmem_load(float (&values)[32], uint32_t from) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 "
        "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : EIGHT(VALUE, 0), EIGHT(VALUE, 8), EIGHT(VALUE, 16), EIGHT(VALUE, 24)
        : "r"(from));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// The current stage of a pipeline, and the phase of its barriers. A consumer waits for `phase`, a
// producer for the other one.
template <int kCount>
struct PipelineState {
    int index = 0, phase = 0;
    __device__ void advance() {
        if (++index == kCount) index = 0, phase ^= 1;
    }
};

// The first row and column of a pair's 256 x 256 tile.
struct Tile {
    int row, column;
};

// Requests the cancellation of a cluster that has not started; every CTA of this one gets the
// response.
__device__ void try_cancel(uint4* response, uint64_t* barrier) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
        ".multicast::cluster::all.b128 [%0], [%1];" ::"r"(smem_address(response)),
        "r"(smem_address(barrier))
        : "memory");
}

// The tile of pair 0 or 1 of the cluster that starts with first_block.
__device__ Tile tile_of(int first_block, int tiles_m, int pair) {
    return {(first_block / kCluster % tiles_m * 2 + pair) * 2 * kTileM,
            first_block / kCluster / tiles_m * kTileN};
}

// Waits for a response and returns the first block of the canceled cluster, or -1 if none was left.
__device__ int next_tile(Shared& shared, PipelineState<kClcStages>& clc) {
    wait(&shared.clc_full[clc.index], clc.phase);
    int block;
    asm volatile(
        "{\n"
        ".reg .pred canceled;\n"
        ".reg .b128 response;\n"
        "ld.shared.b128 response, [%1];\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 canceled, response;\n"
        "mov.b32 %0, -1;\n"
        "@canceled clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, response;\n"
        "}"
        : "=r"(block)
        : "r"(smem_address(&shared.clc_responses[clc.index]))
        : "memory");
    // Order this read before the next response, which the async proxy writes.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (threadIdx.x < kEpilogueThreads) __syncwarp();
    if (threadIdx.x % 32 == 0) arrive_at(&shared.clc_empty[clc.index], 0);
    clc.advance();
    return block;
}

__global__ void __launch_bounds__(kThreads) __cluster_dims__(kCluster)
    matmul_pairs_kernel(const __grid_constant__ CUtensorMap map_a,
                        const __grid_constant__ CUtensorMap map_b, float* c, int m, int n, int k) {
    extern __shared__ char memory[];
    Shared& shared =
        *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    const int rank = blockIdx.x % kCluster, pair = rank / 2, peer = rank % 2, leader = pair * 2;
    const int k_tiles = k / kTileK, tiles_m = m / (4 * kTileM);

    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++) {
            init_barrier(&shared.full[i], 1);
            init_barrier(&shared.empty[i], 2);  // by both pairs: both read what this CTA loads
        }
        for (int i = 0; i < kAccumulators; i++) {
            init_barrier(&shared.tmem_full[i], 1);
            init_barrier(&shared.tmem_empty[i], 2 * kEpilogueThreads / 32);
        }
        for (int i = 0; i < kClcStages; i++) {
            init_barrier(&shared.clc_full[i], 1);
            init_barrier(&shared.clc_empty[i], kCluster * kClcConsumers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();  // both CTAs of a pair allocate together
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         smem_address(&shared.accumulators)),
                     "r"(kAccumulators * kTileN)
                     : "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    cluster_sync();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const uint32_t accumulators = shared.accumulators;
    PipelineState<kStages> stage;
    PipelineState<kAccumulators> accumulator;
    PipelineState<kClcStages> clc;
    int block = blockIdx.x - rank;

    if (threadIdx.x == kProducerThread) {
        for (; block >= 0; block = next_tile(shared, clc)) {
            const Tile tile = tile_of(block, tiles_m, pair);
            for (int k_tile = 0; k_tile < k_tiles; k_tile++, stage.advance()) {
                Stage& to = shared.stages[stage.index];
                uint64_t* const full = &shared.full[stage.index];
                wait(&shared.empty[stage.index], stage.phase ^ 1);
                if (peer == 0) expect_bytes(full, 2 * sizeof(Stage));
                tma_load(to.a, map_a, k_tile * kTileK, tile.row + peer * kTileM, full, leader);
                // CTAs 0 and 2 need the first half of b's rows, CTAs 1 and 3 the second.
                tma_load_multicast(
                    5 << peer, to.b + pair * kMulticastRows * kTileK, map_b, k_tile * kTileK,
                    tile.column + peer * kTileN / 2 + pair * kMulticastRows, full, leader);
            }
        }
    } else if (threadIdx.x == kMmaThread) {
        for (; block >= 0; block = next_tile(shared, clc)) {
            if (peer) continue;
            wait(&shared.tmem_empty[accumulator.index], accumulator.phase ^ 1);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            for (int k_tile = 0; k_tile < k_tiles; k_tile++, stage.advance()) {
                wait(&shared.full[stage.index], stage.phase);
                const uint64_t a = smem_descriptor(shared.stages[stage.index].a);
                const uint64_t b = smem_descriptor(shared.stages[stage.index].b);
                // A K of 16 is 32 bytes, two units of a descriptor's address.
                for (int k_block = 0; k_block < kTileK / 16; k_block++)
                    mma(accumulators + accumulator.index * kTileN, a + k_block * 2, b + k_block * 2,
                        k_tile || k_block);
                commit(&shared.empty[stage.index], 15);
            }
            commit(&shared.tmem_full[accumulator.index], 3 << leader);
            accumulator.advance();
        }
    } else if (threadIdx.x == kSchedulerThread) {
        PipelineState<kClcStages> request;
        while (block >= 0) {
            if (rank == 0) wait(&shared.clc_empty[request.index], request.phase ^ 1);
            expect_bytes(&shared.clc_full[request.index], sizeof(uint4));
            if (rank == 0)
                try_cancel(&shared.clc_responses[request.index], &shared.clc_full[request.index]);
            request.advance();
            block = next_tile(shared, clc);
        }
    } else if (threadIdx.x < kEpilogueThreads) {
        for (; block >= 0; block = next_tile(shared, clc)) {
            const Tile tile = tile_of(block, tiles_m, pair);
            wait(&shared.tmem_full[accumulator.index], accumulator.phase);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            float* const row = &c[size_t(tile.row + peer * kTileM + threadIdx.x) * n + tile.column];
#pragma unroll 1  // unrolling spills registers
            for (int column = 0; column < kTileN; column += 32) {
                float values[32];
                tmem_load(values, accumulators + accumulator.index * kTileN +
                                      (threadIdx.x / 32 * 32 << 16) + column);
#pragma unroll
                for (int i = 0; i < 32; i += 4)
                    *reinterpret_cast<float4*>(&row[column + i]) =
                        make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
            }
            asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive_at(&shared.tmem_empty[accumulator.index], leader);
            accumulator.advance();
        }
    }
    // Both CTAs of a pair deallocate together, and none exits while others access its memory.
    __syncwarp();
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    cluster_sync();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(accumulators),
                     "r"(kAccumulators * kTileN));
}

// The TMA descriptor of a matrix, for boxes of `box_rows` rows and kTileK columns.
CUresult make_tensor_map(CUtensorMap* map, const __nv_bfloat16* matrix, int rows, int k,
                         int box_rows) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!function) return CUDA_ERROR_NOT_FOUND;
    const cuuint64_t extents[] = {cuuint64_t(k), cuuint64_t(rows)}, strides[] = {2ull * k};
    const cuuint32_t box[] = {kTileK, cuuint32_t(box_rows)}, element_strides[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(matrix), extents,
        strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace

extern "C" cudaError_t matmul_pairs(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m,
                                    int n, int k) {
    if (m % (kCluster * kTileM) || n % kTileN || k % kTileK) return cudaErrorInvalidValue;
    CUtensorMap map_a, map_b;
    if (make_tensor_map(&map_a, a, m, k, kTileM) ||
        make_tensor_map(&map_b, b, n, k, kMulticastRows))
        return cudaErrorInvalidValue;
    cudaFuncSetAttribute(
        matmul_pairs_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    matmul_pairs_kernel<<<m / kTileM*(n / kTileN), kThreads, kSharedBytes>>>(
        map_a, map_b, c, m, n, k);
    return cudaGetLastError();
}
