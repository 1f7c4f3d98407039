// c = a @ b.T as fast as cuBLAS: blocks in pairs share b's tiles by multicast, stay for many tiles,
// and write them by TMA while the next ones arrive.
// a [m, k], b [n, k], c [m, n] bfloat16; n and k are multiples of 8.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kRows = 128, kColumns = 256, kStep = 64, kStages = 4;  // a block's tile of c
constexpr int kConsumers = 2, kThreads = 128 * (kConsumers + 1);
constexpr int kPair = 2;        // blocks of a cluster, one below the other
constexpr int kPart = 64;       // columns of c that a warpgroup stores at a time
constexpr int kPairsAbove = 8;  // row tiles of a pair that are taken before the next column

using T = __nv_bfloat16;

struct Stage {
    T a[kRows * kStep], b[kColumns * kStep];
};
struct Shared {
    Stage stages[kStages];
    T parts[kConsumers][2][kRows / kConsumers * kPart];
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

// At the same barrier of a block of the cluster. Written with .release.cluster, this is slower by a
// quarter on an H200, and nothing that threads have written has to be seen.
__device__ void arrive_at(uint64_t* barrier, int rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}" ::"r"(address(barrier)),
        "r"(rank)
        : "memory");
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

// To the same place in both blocks, and told to the same barrier of each.
__device__ void fetch_for_both(void* to, const CUtensorMap& map, int column, int row,
                               uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(address(barrier)), "h"(uint16_t(3))
        : "memory");
}

__device__ void store(const CUtensorMap& map, const void* from, int column, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
        "r"(column), "r"(row), "r"(address(from))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Rows of 128 bytes in the 128-byte swizzle, eight of them every 1024 bytes.
__device__ uint64_t descriptor(const T* tile) {
    return uint64_t(address(tile) >> 4 & 0x3fff) | 1ull << 16 | uint64_t(1024 >> 4) << 32 |
           1ull << 62;
}

#define EIGHT(f, i) f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7)
#define SUM(i) "+f"(sums[i])

// 64 rows of a by 256 rows of b, over 16 of k: written to the sums, or added.
__device__ void multiply(float (&sums)[128], uint64_t a, uint64_t b, bool adds) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
        " %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "
        " %123, %124, %125, %126, %127}, "
        "%128, %129, adds, 1, 1, 0, 0;\n"
        "}"
        : EIGHT(SUM, 0), EIGHT(SUM, 8), EIGHT(SUM, 16), EIGHT(SUM, 24), EIGHT(SUM, 32),
          EIGHT(SUM, 40), EIGHT(SUM, 48), EIGHT(SUM, 56), EIGHT(SUM, 64), EIGHT(SUM, 72),
          EIGHT(SUM, 80), EIGHT(SUM, 88), EIGHT(SUM, 96), EIGHT(SUM, 104), EIGHT(SUM, 112),
          EIGHT(SUM, 120)
        : "l"(a), "l"(b), "r"(int(adds)));
}

// Eight columns of 64 rows more, as the warpgroup has them in its registers, to one of its parts.
__device__ void put(const T* part, int thread, const float* sums) {
    const int lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    for (int pair = 0; pair < kPart / 16; pair++) {
        uint32_t words[4];
        for (int i = 0; i < 4; i++) {
            const __nv_bfloat162 two =
                __floats2bfloat162_rn(sums[8 * pair + 2 * i], sums[8 * pair + 2 * i + 1]);
            words[i] = reinterpret_cast<const uint32_t&>(two);
        }
        const int chunk = 2 * pair + lane / 16;  // of 16 bytes, swizzled as TMA has it
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         address(part) + row * 128 + (chunk ^ row % 8) * 16),
                     "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
    }
}

struct Tiles {
    int rows, columns;  // in tiles; a pair has two rows of tiles

    // The nth: down eight pairs and then to the right, so that the blocks that run at the same time
    // find the rows of a and b that they need in the L2 cache.
    __device__ bool at(int n, int& row, int& column) const {
        const int pairs = (rows + kPair - 1) / kPair;
        if (n >= pairs * columns) return false;
        const int first = n / (kPairsAbove * columns) * kPairsAbove;
        const int height = pairs - first < kPairsAbove ? pairs - first : kPairsAbove;
        row = first + (n - first * columns) % height;
        column = (n - first * columns) / height;
        return true;
    }
};

__global__ void __launch_bounds__(kThreads) __cluster_dims__(kPair)
    matmul_cluster_kernel(const __grid_constant__ CUtensorMap map_a,
                          const __grid_constant__ CUtensorMap map_b,
                          const __grid_constant__ CUtensorMap map_c, Tiles tiles, int steps) {
    extern __shared__ char memory[];
    Shared& shared =
        *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    const int rank = blockIdx.x % kPair, pair = blockIdx.x / kPair, pairs = gridDim.x / kPair;
    const int group = threadIdx.x / 128, thread = threadIdx.x % 128;

    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++) {
            init(&shared.full[i], 1);
            init(&shared.empty[i], kConsumers * kPair);  // both blocks write into each
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");

    int i = 0, round = 0, row, column;  // a stage, and how often all have been used
    const auto next = [&] {
        if (++i == kStages) i = 0, round++;
    };
    if (group == kConsumers) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int n = pair; thread == 0 && tiles.at(n, row, column); n += pairs)
            for (int step = 0; step < steps; step++, next()) {
                Stage& stage = shared.stages[i];
                wait(&shared.empty[i], (round + 1) % 2);
                expect_bytes(&shared.full[i], sizeof(Stage));
                fetch(stage.a, map_a, step * kStep, (row * kPair + rank) * kRows, &shared.full[i]);
                const int half = rank * kColumns / kPair;
                fetch_for_both(stage.b + half * kStep, map_b, step * kStep,
                               column * kColumns + half, &shared.full[i]);
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float sums[128];
        for (int n = pair; tiles.at(n, row, column); n += pairs) {
            int before = 0;
            for (int step = 0; step < steps; step++, next()) {
                wait(&shared.full[i], round % 2);
                const uint64_t a = descriptor(shared.stages[i].a + group * 64 * kStep);
                const uint64_t b = descriptor(shared.stages[i].b);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int at = 0; at < kStep / 16; at++)
                    multiply(sums, a + at * 2, b + at * 2, step || at);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                // Of the stage before this one all products are done.
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (step && thread < kPair) arrive_at(&shared.empty[before], thread);
                before = i;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (thread < kPair) arrive_at(&shared.empty[before], thread);

#pragma unroll
            for (int k = 0; k < kColumns / kPart; k++) {
                T* const part = shared.parts[group][k % 2];
                if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                put(part, thread, sums + k * kPart / 2);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                if (thread == 0)
                    store(map_c, part, column * kColumns + k * kPart,
                          (row * kPair + rank) * kRows + group * 64);
            }
        }
        if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    // What the other block sends must find this one's memory.
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// Of a matrix in boxes of 64 columns.
CUresult encode(CUtensorMap* map, const T* matrix, int rows, int columns, int rows_of_box) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!function) return CUDA_ERROR_NOT_FOUND;
    const cuuint64_t extents[] = {cuuint64_t(columns), cuuint64_t(rows)};
    const cuuint64_t strides[] = {2ull * columns};
    const cuuint32_t box[] = {64, cuuint32_t(rows_of_box)}, steps[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<T*>(matrix), extents, strides, box,
        steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

int divided(int a, int b) { return (a + b - 1) / b; }

}  // namespace

extern "C" cudaError_t matmul_cluster(const T* a, const T* b, T* c, int m, int n, int k,
                                      cudaStream_t stream) {
    CUtensorMap map_a, map_b, map_c;
    if (encode(&map_a, a, m, k, kRows) || encode(&map_b, b, n, k, kColumns / kPair) ||
        encode(&map_c, c, m, n, kRows / kConsumers))
        return cudaErrorInvalidValue;
    int device, processors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const Tiles tiles{divided(m, kRows), divided(n, kColumns)};
    const int pairs = divided(tiles.rows, kPair) * tiles.columns;
    const int blocks = kPair * (pairs < processors / kPair ? pairs : processors / kPair);
    cudaFuncSetAttribute(
        matmul_cluster_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    matmul_cluster_kernel<<<blocks, kThreads, kSharedBytes, stream>>>(
        map_a, map_b, map_c, tiles, divided(k, kStep));
    return cudaGetLastError();
}
