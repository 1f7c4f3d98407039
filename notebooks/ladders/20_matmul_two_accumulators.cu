// Rung 2: c = a @ b.T by tcgen05 with two accumulators. A block stays for many tiles: while an
// epilogue warpgroup reads one accumulator, the products of the next tile fill the other.
// a [m, k], b [n, k] bfloat16, c [m, n] float32; m is a multiple of 128, n of 256, k of 64.
//
// Flaw: a block's tiles are settled before it starts, so the last ones run while others idle.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kRows = 128, kColumns = 256, kStep = 64, kStages = 4, kAccumulators = 2;
// The epilogue comes first: warp w of a warpgroup reaches lanes 32 w to 32 w + 31.
constexpr int kEpilogue = 128, kProducer = 128, kMultiplier = 160, kThreads = 192;

struct Stage {
    __nv_bfloat16 a[kRows * kStep], b[kColumns * kStep];
};
struct Shared {
    Stage stages[kStages];
    uint64_t full[kStages], empty[kStages];
    uint64_t filled[kAccumulators], drained[kAccumulators];
    uint32_t accumulators;  // their address in tensor memory: all of its 512 columns
};
constexpr int kSharedBytes = sizeof(Shared) + 1024;  // aligned to 1024 bytes by the kernel

__device__ uint32_t address(const void* shared) {
    return uint32_t(__cvta_generic_to_shared(shared));
}

__device__ void init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(arrivals)
                 : "memory");
}

__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "@!ended bra again;\n"
        "}" ::"r"(address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}

__device__ void expect_bytes(uint64_t* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes)
        : "memory");
}

__device__ void fetch(void* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(address(barrier))
        : "memory");
}

// Rows of 128 bytes in the 128-byte swizzle, eight of them every 1024 bytes.
__device__ uint64_t descriptor(const __nv_bfloat16* tile) {
    return uint64_t(address(tile) >> 4 & 0x3fff) | uint64_t(1024 >> 4) << 32 | 1ull << 46 |
           2ull << 61;
}

// Types of D (float32), A and B (bfloat16), both with k in rows; N / 8, M / 16.
constexpr uint32_t kInstruction = 1 << 4 | 1 << 7 | 1 << 10 | kColumns / 8 << 17 | kRows / 16 << 24;

// 128 rows of a by 128 rows of b, over 16 of k: written to the accumulator, or added.
__device__ void multiply(uint32_t accumulator, uint64_t a, uint64_t b, bool adds) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, adds;\n"
        "}" ::"r"(accumulator),
        "l"(a), "l"(b), "r"(kInstruction), "r"(int(adds))
        : "memory");
}

// The barrier gets one arrival when all products so far are done.
__device__ void commit(uint64_t* barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
            address(barrier))
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

__global__ void __launch_bounds__(kThreads) matmul_two_accumulators_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* c,
    int m, int n, int k) {
    extern __shared__ char memory[];
    Shared& shared =
        *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    const int steps = k / kStep, across = n / kColumns, tiles = m / kRows * across;

    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         address(&shared.accumulators)),
                     "r"(kAccumulators * kColumns)
                     : "memory");
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++) {
            init(&shared.full[i], 1);
            init(&shared.empty[i], 1);
        }
        for (int i = 0; i < kAccumulators; i++) {
            init(&shared.filled[i], 1);
            init(&shared.drained[i], kEpilogue);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const uint32_t accumulators = shared.accumulators;
    Turn<kStages> stage;
    Turn<kAccumulators> use;

    if (threadIdx.x == kProducer) {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
            for (int step = 0; step < steps; step++, stage.next()) {
                Stage& to = shared.stages[stage.i];
                uint64_t* const full = &shared.full[stage.i];
                wait(&shared.empty[stage.i], (stage.round + 1) % 2);
                expect_bytes(full, sizeof(Stage));
                fetch(to.a, map_a, step * kStep, tile / across * kRows, full);
                fetch(to.b, map_b, step * kStep, tile % across * kColumns, full);
            }
    } else if (threadIdx.x == kMultiplier) {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, use.next()) {
            wait(&shared.drained[use.i], (use.round + 1) % 2);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            for (int step = 0; step < steps; step++, stage.next()) {
                wait(&shared.full[stage.i], stage.round % 2);
                const uint64_t a = descriptor(shared.stages[stage.i].a);
                const uint64_t b = descriptor(shared.stages[stage.i].b);
                for (int at = 0; at < kStep / 16; at++)  // 16 of k are 32 bytes: two units of 16
                    multiply(accumulators + use.i * kColumns, a + at * 2, b + at * 2, step || at);
                commit(&shared.empty[stage.i]);
            }
            commit(&shared.filled[use.i]);
        }
    } else if (threadIdx.x < kEpilogue) {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, use.next()) {
            wait(&shared.filled[use.i], use.round % 2);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            float* const row =
                &c[size_t(tile / across * kRows + threadIdx.x) * n + tile % across * kColumns];
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
            arrive(&shared.drained[use.i]);
        }
    }
    __syncthreads();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(accumulators),
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

extern "C" cudaError_t matmul_two_accumulators(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                               float* c, int m, int n, int k) {
    CUtensorMap map_a, map_b;
    if (encode(&map_a, a, m, k, kRows) || encode(&map_b, b, n, k, kColumns))
        return cudaErrorInvalidValue;
    int device, processors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const int tiles = (m / kRows) * (n / kColumns),
              blocks = tiles < processors ? tiles : processors;
    cudaFuncSetAttribute(
        matmul_two_accumulators_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    matmul_two_accumulators_kernel<<<blocks, kThreads, kSharedBytes>>>(map_a, map_b, c, m, n, k);
    return cudaGetLastError();
}
