// c = a @ b.T by wgmma: one warp has TMA fetch tiles, two warpgroups multiply them.
// a [m, k], b [n, k] bfloat16, c [m, n] float32; m and n are multiples of 128, k of 64.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kTile = 128, kStep = 64, kStages = 4, kConsumers = 2;
constexpr int kThreads = 128 * (kConsumers + 1);

struct Stage {
    __nv_bfloat16 a[kTile * kStep], b[kTile * kStep];
};
struct Shared {
    Stage stages[kStages];
    uint64_t full[kStages], empty[kStages];
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
    return uint64_t(address(tile) >> 4 & 0x3fff) | 1ull << 16 | uint64_t(1024 >> 4) << 32 |
           1ull << 62;
}

#define EIGHT(f, i) f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7)
#define SUM(i) "+f"(sums[i])

// 64 rows of a by 128 rows of b, over 16 of k.
__device__ void multiply(float (&sums)[64], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;"
        : EIGHT(SUM, 0), EIGHT(SUM, 8), EIGHT(SUM, 16), EIGHT(SUM, 24), EIGHT(SUM, 32),
          EIGHT(SUM, 40), EIGHT(SUM, 48), EIGHT(SUM, 56)
        : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(kThreads) matmul_wgmma_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* c,
    int n, int k) {
    extern __shared__ char memory[];
    Shared& shared =
        *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile;
    const int group = threadIdx.x / 128, steps = k / kStep;

    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++) {
            init(&shared.full[i], 1);
            init(&shared.empty[i], kConsumers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (group == kConsumers) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x % 128 == 0)
            for (int step = 0; step < steps; step++) {
                const int i = step % kStages, round = step / kStages;
                if (round) wait(&shared.empty[i], (round - 1) % 2);
                expect_bytes(&shared.full[i], sizeof(Stage));
                fetch(shared.stages[i].a, map_a, step * kStep, first_row, &shared.full[i]);
                fetch(shared.stages[i].b, map_b, step * kStep, first_column, &shared.full[i]);
            }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float sums[64] = {};
    for (int step = 0; step < steps; step++) {
        const int i = step % kStages;
        wait(&shared.full[i], step / kStages % 2);
        const uint64_t a = descriptor(shared.stages[i].a + group * 64 * kStep);
        const uint64_t b = descriptor(shared.stages[i].b);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int at = 0; at < kStep / 16; at++) multiply(sums, a + at * 2, b + at * 2);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (threadIdx.x % 128 == 0) arrive(&shared.empty[i]);
    }

    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const int row = first_row + group * 64 + warp * 16 + lane / 4;
    for (int j = 0; j < 16; j++)
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<float2*>(
                &c[(row + 8 * half) * n + first_column + 8 * j + lane % 4 * 2]) =
                make_float2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
}

// Of a matrix in tiles of kTile x kStep.
CUresult encode(CUtensorMap* map, const __nv_bfloat16* matrix, int rows, int k) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!function) return CUDA_ERROR_NOT_FOUND;
    const cuuint64_t extents[] = {cuuint64_t(k), cuuint64_t(rows)}, strides[] = {2ull * k};
    const cuuint32_t box[] = {kStep, kTile}, steps[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(matrix), extents,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace

extern "C" cudaError_t matmul_wgmma(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m,
                                    int n, int k) {
    CUtensorMap map_a, map_b;
    if (encode(&map_a, a, m, k) || encode(&map_b, b, n, k)) return cudaErrorInvalidValue;
    cudaFuncSetAttribute(
        matmul_wgmma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    matmul_wgmma_kernel<<<dim3(n / kTile, m / kTile), kThreads, kSharedBytes>>>(
        map_a, map_b, c, n, k);
    return cudaGetLastError();
}
