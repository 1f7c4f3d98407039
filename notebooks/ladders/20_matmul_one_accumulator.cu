// Rung 1: c = a @ b.T with tcgen05 and one accumulator. A producer thread loads tiles with TMA, an
// MMA thread issues the products, and all four warps read the accumulator from tensor memory.
// a [m, k], b [n, k] bfloat16, c [m, n] float32; m and n are multiples of 128, k of 64.
//
// Flaw: the tensor cores idle while the epilogue reads the accumulator.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kTileM = 128, kTileN = 128, kTileK = 64, kStages = 4, kThreads = 128;

struct Stage {
    __nv_bfloat16 a[kTileM * kTileK], b[kTileN * kTileK];
};
struct Shared {
    Stage stages[kStages];
    uint64_t full[kStages], empty[kStages], done;
    uint32_t accumulator;  // its tensor memory address
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

__device__ void expect_bytes(uint64_t* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)),
        "r"(bytes)
        : "memory");
}

__device__ void tma_load(void* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(smem_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(smem_address(barrier))
        : "memory");
}

// Shared memory descriptor: K-major, 128-byte swizzle, 1024 bytes from 8 rows to the next 8.
__device__ uint64_t smem_descriptor(const __nv_bfloat16* tile) {
    return uint64_t(smem_address(tile) >> 4 & 0x3fff) | uint64_t(1024 >> 4) << 32 | 1ull << 46 |
           2ull << 61;
}

// Instruction descriptor: D float32, A and B bfloat16, both K-major; N / 8 and M / 16.
constexpr uint32_t kInstructionDescriptor =
    1 << 4 | 1 << 7 | 1 << 10 | kTileN / 8 << 17 | kTileM / 16 << 24;

// Multiplies 128 x 16 elements of a by 128 x 16 of b; overwrites or adds to the accumulator.
__device__ void mma(uint32_t accumulator, uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, accumulate;\n"
        "}" ::"r"(accumulator),
        "l"(a), "l"(b), "r"(kInstructionDescriptor), "r"(int(accumulate))
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

__global__ void __launch_bounds__(kThreads) matmul_one_accumulator_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* c,
    int n, int k) {
    extern __shared__ char memory[];
    Shared& shared =
        *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    const int first_row = blockIdx.y * kTileM, first_column = blockIdx.x * kTileN;
    const int warp = threadIdx.x / 32, k_tiles = k / kTileK;

    if (warp == 0)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         smem_address(&shared.accumulator)),
                     "r"(kTileN)
                     : "memory");
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++) {
            init_barrier(&shared.full[i], 1);
            init_barrier(&shared.empty[i], 1);
        }
        init_barrier(&shared.done, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const uint32_t accumulator = shared.accumulator;

    if (threadIdx.x == 0) {  // producer
        for (int k_tile = 0; k_tile < k_tiles; k_tile++) {
            const int i = k_tile % kStages, round = k_tile / kStages;
            wait(&shared.empty[i], (round + 1) % 2);
            expect_bytes(&shared.full[i], sizeof(Stage));
            tma_load(shared.stages[i].a, map_a, k_tile * kTileK, first_row, &shared.full[i]);
            tma_load(shared.stages[i].b, map_b, k_tile * kTileK, first_column, &shared.full[i]);
        }
    } else if (threadIdx.x == 32) {  // MMA
        for (int k_tile = 0; k_tile < k_tiles; k_tile++) {
            const int i = k_tile % kStages;
            wait(&shared.full[i], k_tile / kStages % 2);
            const uint64_t a = smem_descriptor(shared.stages[i].a),
                           b = smem_descriptor(shared.stages[i].b);
            // A K of 16 is 32 bytes, two units of a descriptor's address.
            for (int k_block = 0; k_block < kTileK / 16; k_block++)
                mma(accumulator, a + k_block * 2, b + k_block * 2, k_tile || k_block);
            commit(&shared.empty[i]);
        }
        commit(&shared.done);
    }
    __syncwarp();

    // Epilogue. Warp w can access lanes 32 w to 32 w + 31: each thread reads a row of the tile.
    wait(&shared.done, 0);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    float* const row = &c[size_t(first_row + threadIdx.x) * n + first_column];
    for (int column = 0; column < kTileN; column += 32) {
        float values[32];
        tmem_load(values, accumulator + (warp * 32 << 16) + column);
#pragma unroll
        for (int i = 0; i < 32; i += 4)
            *reinterpret_cast<float4*>(&row[column + i]) =
                make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (warp == 0)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(accumulator),
                     "r"(kTileN));
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

extern "C" cudaError_t matmul_one_accumulator(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                              float* c, int m, int n, int k) {
    if (m % kTileM || n % kTileN || k % kTileK) return cudaErrorInvalidValue;
    CUtensorMap map_a, map_b;
    if (make_tensor_map(&map_a, a, m, k, kTileM) || make_tensor_map(&map_b, b, n, k, kTileN))
        return cudaErrorInvalidValue;
    cudaFuncSetAttribute(
        matmul_one_accumulator_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    matmul_one_accumulator_kernel<<<dim3(n / kTileN, m / kTileM), kThreads, kSharedBytes>>>(
        map_a, map_b, c, n, k);
    return cudaGetLastError();
}
