// Rung 4: c = a @ b.T by tcgen05 on pairs of blocks. A pair's 256 x 256 tile is one product: each
// block has half of a's rows, half of b's, and the sums of its rows. Two pairs make a cluster, one
// below the other: they need the same of b, and each block fetches a quarter of it for two.
// a [m, k], b [n, k] bfloat16, c [m, n] float32; m is a multiple of 512, n of 256, k of 64.
//
// Flaw: c is written by the threads, row by row; TMA would free them earlier.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kRows = 128, kStep = 64, kStages = 6, kAccumulators = 2, kAnswers = 3;
constexpr int kColumns = 256;        // of c
constexpr int kPart = kColumns / 4;  // rows of b that a block fetches, for two blocks
constexpr int kCluster = 4;          // blocks 0 and 1 are a pair, and 2 and 3; the even ones lead
// The epilogue comes first: warp w of a warpgroup reaches lanes 32 w to 32 w + 31.
constexpr int kEpilogue = 128, kProducer = 128, kMultiplier = 160, kScheduler = 192, kThreads = 224;
constexpr int kReaders = kEpilogue / 32 + 3;  // warps of a block that read each answer

struct Stage {
    __nv_bfloat16 a[kRows * kStep], b[kColumns / 2 * kStep];
};
struct Shared {
    Stage stages[kStages];
    uint64_t full[kStages], empty[kStages];
    uint64_t filled[kAccumulators], drained[kAccumulators];
    alignas(16) uint4 answers[kAnswers];
    uint64_t answered[kAnswers], read[kAnswers];
    uint32_t accumulators;  // their address in tensor memory: all of its 512 columns
};
constexpr int kSharedBytes = sizeof(Shared) + 1024;  // aligned to 1024 bytes by the kernel

__device__ uint32_t address(const void* shared) {
    return uint32_t(__cvta_generic_to_shared(shared));
}

// Of the same place in a block of the cluster.
__device__ uint32_t address_in(const void* shared, int rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(shared)), "r"(rank));
    return there;
}

__device__ void init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(arrivals)
                 : "memory");
}

// Others of the cluster arrive here: what they have done before is seen, for its scope is theirs.
__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%0], %1;\n"
        "@!ended bra again;\n"
        "}" ::"r"(address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ void arrive_at(uint64_t* barrier, int rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address_in(
        barrier, rank))
                 : "memory");
}

__device__ void expect_bytes(uint64_t* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes)
        : "memory");
}

__device__ void meet_cluster() {
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// To this block, and told to the barrier of its pair's leader.
__device__ void fetch(void* to, const CUtensorMap& map, int column, int row, uint64_t* barrier,
                      int leader) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(address_in(barrier, leader))
        : "memory");
}

// To the same place in each block of the mask, and told to the leaders of their pairs.
__device__ void fetch_for(int mask, void* to, const CUtensorMap& map, int column, int row,
                          uint64_t* barrier, int leader) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.cta_group::2 [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(address_in(barrier, leader)), "h"(uint16_t(mask))
        : "memory");
}

// Rows of 128 bytes in the 128-byte swizzle, eight of them every 1024 bytes.
__device__ uint64_t descriptor(const __nv_bfloat16* tile) {
    return uint64_t(address(tile) >> 4 & 0x3fff) | uint64_t(1024 >> 4) << 32 | 1ull << 46 |
           2ull << 61;
}

// Types of D (float32), A and B (bfloat16), both with k in rows; N / 8, M / 16 of the pair.
constexpr uint32_t kInstruction =
    1 << 4 | 1 << 7 | 1 << 10 | kColumns / 8 << 17 | 2 * kRows / 16 << 24;

// 256 rows of a by 256 rows of b, half of each in each block, over 16 of k.
__device__ void multiply(uint32_t accumulator, uint64_t a, uint64_t b, bool adds) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %4, 0;\n"
        "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, adds;\n"
        "}" ::"r"(accumulator),
        "l"(a), "l"(b), "r"(kInstruction), "r"(int(adds))
        : "memory");
}

// The barrier in each block of the mask gets one arrival when all products so far are done.
__device__ void commit(uint64_t* barrier, int mask) {
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
        "[%0], %1;" ::"r"(address(barrier)),
        "h"(uint16_t(mask))
        : "memory");
}

#define EIGHT(f, i) f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7)
#define SUM(i) "=f"(sums[i])

// 32 columns of the thread's row.
__device__ void load(float (&sums)[32], uint32_t from) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 "
        "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : EIGHT(SUM, 0), EIGHT(SUM, 8), EIGHT(SUM, 16), EIGHT(SUM, 24)
        : "r"(from));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// Which of several, and how often all have been used: its parity is what a wait asks for.
template <int count>
struct Turn {
    int i = 0, round = 0;
    __device__ void next() {
        if (++i == count) i = 0, round++;
    }
};

// Where a pair's 256 x 256 tile begins.
struct Tile {
    int row, column;
};

// Asks for a cluster that has not begun. Every block of this one gets the answer.
__device__ void ask(uint4* answer, uint64_t* barrier) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
        ".multicast::cluster::all.b128 [%0], [%1];" ::"r"(address(answer)),
        "r"(address(barrier))
        : "memory");
}

// Of the cluster whose first block is this one, the tile of pair 0 or 1.
__device__ Tile tile_of(int first_block, int down, int pair) {
    return {(first_block / kCluster % down * 2 + pair) * 2 * kRows,
            first_block / kCluster / down * kColumns};
}

// The next cluster's first block, or -1 if none is left. All readers come here for each answer.
__device__ int next(Shared& shared, Turn<kAnswers>& turn) {
    wait(&shared.answered[turn.i], turn.round % 2);
    int block;
    asm volatile(
        "{\n"
        ".reg .pred is_canceled;\n"
        ".reg .b128 answer;\n"
        "ld.shared.b128 answer, [%1];\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 is_canceled, answer;\n"
        "mov.b32 %0, -1;\n"
        "@is_canceled clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, answer;\n"
        "}"
        : "=r"(block)
        : "r"(address(&shared.answers[turn.i]))
        : "memory");
    // Reads of the answer come before the next one, which another proxy writes.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (threadIdx.x < kEpilogue) __syncwarp();
    if (threadIdx.x % 32 == 0) arrive_at(&shared.read[turn.i], 0);
    turn.next();
    return block;
}

__global__ void __launch_bounds__(kThreads) __cluster_dims__(kCluster)
    matmul_pairs_kernel(const __grid_constant__ CUtensorMap map_a,
                        const __grid_constant__ CUtensorMap map_b, float* c, int m, int n, int k) {
    extern __shared__ char memory[];
    Shared& shared =
        *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    const int rank = blockIdx.x % kCluster, pair = rank / 2, half = rank % 2, leader = pair * 2;
    const int steps = k / kStep, down = m / (4 * kRows);

    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++) {
            init(&shared.full[i], 1);
            init(
                &shared.empty[i], 2);  // of both pairs, whose products read what this block fetches
        }
        for (int i = 0; i < kAccumulators; i++) {
            init(&shared.filled[i], 1);
            init(&shared.drained[i], 2 * kEpilogue / 32);
        }
        for (int i = 0; i < kAnswers; i++) {
            init(&shared.answered[i], 1);
            init(&shared.read[i], kCluster * kReaders);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet_cluster();  // both blocks of a pair are there when they allocate together
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         address(&shared.accumulators)),
                     "r"(kAccumulators * kColumns)
                     : "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    meet_cluster();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const uint32_t accumulators = shared.accumulators;
    Turn<kStages> stage;
    Turn<kAccumulators> use;
    Turn<kAnswers> answer;
    int block = blockIdx.x - rank;

    if (threadIdx.x == kProducer) {
        for (; block >= 0; block = next(shared, answer)) {
            const Tile tile = tile_of(block, down, pair);
            for (int step = 0; step < steps; step++, stage.next()) {
                Stage& to = shared.stages[stage.i];
                uint64_t* const full = &shared.full[stage.i];
                wait(&shared.empty[stage.i], (stage.round + 1) % 2);
                if (half == 0) expect_bytes(full, 2 * sizeof(Stage));
                fetch(to.a, map_a, step * kStep, tile.row + half * kRows, full, leader);
                // Blocks 0 and 2 need one half of b's rows, blocks 1 and 3 the other.
                fetch_for(5 << half, to.b + pair * kPart * kStep, map_b, step * kStep,
                          tile.column + half * kColumns / 2 + pair * kPart, full, leader);
            }
        }
    } else if (threadIdx.x == kMultiplier) {
        for (; block >= 0; block = next(shared, answer)) {
            if (half) continue;
            wait(&shared.drained[use.i], (use.round + 1) % 2);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            for (int step = 0; step < steps; step++, stage.next()) {
                wait(&shared.full[stage.i], stage.round % 2);
                const uint64_t a = descriptor(shared.stages[stage.i].a);
                const uint64_t b = descriptor(shared.stages[stage.i].b);
                for (int at = 0; at < kStep / 16; at++)  // 16 of k are 32 bytes: two units of 16
                    multiply(accumulators + use.i * kColumns, a + at * 2, b + at * 2, step || at);
                commit(&shared.empty[stage.i], 15);
            }
            commit(&shared.filled[use.i], 3 << leader);
            use.next();
        }
    } else if (threadIdx.x == kScheduler) {
        Turn<kAnswers> asked;
        while (block >= 0) {
            if (rank == 0) wait(&shared.read[asked.i], (asked.round + 1) % 2);
            expect_bytes(&shared.answered[asked.i], sizeof(uint4));
            if (rank == 0) ask(&shared.answers[asked.i], &shared.answered[asked.i]);
            asked.next();
            block = next(shared, answer);
        }
    } else if (threadIdx.x < kEpilogue) {
        for (; block >= 0; block = next(shared, answer)) {
            const Tile tile = tile_of(block, down, pair);
            wait(&shared.filled[use.i], use.round % 2);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            float* const row = &c[size_t(tile.row + half * kRows + threadIdx.x) * n + tile.column];
#pragma unroll 1  // unrolled, it spills
            for (int column = 0; column < kColumns; column += 32) {
                float sums[32];
                load(
                    sums, accumulators + use.i * kColumns + (threadIdx.x / 32 * 32 << 16) + column);
#pragma unroll
                for (int i = 0; i < 32; i += 4)
                    *reinterpret_cast<float4*>(&row[column + i]) =
                        make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
            }
            asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive_at(&shared.drained[use.i], leader);
            use.next();
        }
    }
    // Both blocks of a pair free it together, and what others send must find this block's memory.
    __syncwarp();
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    meet_cluster();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(accumulators),
                     "r"(kAccumulators * kColumns));
}

// Of a matrix in boxes of kStep columns.
CUresult encode(CUtensorMap* map, const __nv_bfloat16* matrix, int rows, int k, int rows_of_box) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!function) return CUDA_ERROR_NOT_FOUND;
    const cuuint64_t extents[] = {cuuint64_t(k), cuuint64_t(rows)}, strides[] = {2ull * k};
    const cuuint32_t box[] = {kStep, cuuint32_t(rows_of_box)}, steps[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(matrix), extents,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace

extern "C" cudaError_t matmul_pairs(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m,
                                    int n, int k) {
    CUtensorMap map_a, map_b;
    if (encode(&map_a, a, m, k, kRows) || encode(&map_b, b, n, k, kPart))
        return cudaErrorInvalidValue;
    cudaFuncSetAttribute(
        matmul_pairs_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    matmul_pairs_kernel<<<m / kRows*(n / kColumns), kThreads, kSharedBytes>>>(
        map_a, map_b, c, m, n, k);
    return cudaGetLastError();
}
