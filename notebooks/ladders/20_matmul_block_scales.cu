// Rung 5: c = a @ b.T with block scales, in MXFP8 or NVFP4. The tensor cores multiply each block of
// a row by its scale; tcgen05.cp copies the scales from shared to tensor memory.
//   MXFP8: a [m, k], b [n, k] e4m3, a scale in e8m0 for each 32 elements of a row; k % 128 == 0
//   NVFP4: a, b e2m1, two in a byte, a scale in e4m3 for each 16 elements of a row; k % 256 == 0
// c [m, n] float32; m and n are multiples of 128.
//
// Scales are stored in 512-byte tiles of 128 rows x 4 blocks: the scale of row r and block j is
// byte r % 32 * 16 + r / 32 * 4 + j. The tiles of 128 rows follow each other along k.
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kTileM = 128, kTileN = 128, kStages = 4, kAccumulators = 2;
constexpr int kRowBytes = 128;   // of a stage: 128 elements of MXFP8, 256 of NVFP4
constexpr int kScaleTile = 512;  // bytes, which take 4 columns of tensor memory
// The epilogue warpgroup comes first: warp w of a warpgroup can access lanes 32 w to 32 w + 31.
constexpr int kEpilogueThreads = 128, kProducerThread = 128, kMmaThread = 160, kThreads = 192;

struct Mxfp8 {
    static constexpr int kScaleTiles = 1;  // of a stage
};
struct Nvfp4 {
    static constexpr int kScaleTiles = 4;
};

template <class Format>
struct Stage {
    char a[kTileM * kRowBytes], b[kTileN * kRowBytes];
    char scales_a[Format::kScaleTiles * kScaleTile], scales_b[Format::kScaleTiles * kScaleTile];
};
template <class Format>
struct Shared {
    Stage<Format> stages[kStages];
    uint64_t full[kStages], empty[kStages];
    uint64_t tmem_full[kAccumulators], tmem_empty[kAccumulators];
    uint32_t columns;  // tensor memory address of the accumulators; the scales of each stage follow
};
template <class Format>
constexpr int kSharedBytes = sizeof(Shared<Format>) + 1024;  // aligned by the kernel

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

__device__ void tma_load(void* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(smem_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(smem_address(barrier))
        : "memory");
}

// Loads consecutive bytes.
__device__ void tma_load(void* to, const void* from, int bytes, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(smem_address(to)),
        "l"(from), "r"(bytes), "r"(smem_address(barrier))
        : "memory");
}

// Shared memory descriptor: K-major, 128-byte swizzle, 1024 bytes from 8 rows to the next 8.
__device__ uint64_t smem_descriptor(const void* tile) {
    return uint64_t(smem_address(tile) >> 4 & 0x3fff) | uint64_t(1024 >> 4) << 32 | 1ull << 46 |
           2ull << 61;
}

// Copies a tile of scales, 32 rows of 16 bytes, to tensor memory: to all four groups of 32 lanes.
__device__ void copy_scales(uint32_t to, const char* tile) {
    const uint64_t from =
        uint64_t(smem_address(tile) >> 4 & 0x3fff) | uint64_t(128 >> 4) << 32 | 1ull << 46;
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from)
                 : "memory");
}

constexpr uint32_t kShape = kTileN / 8 << 17 | kTileM / 16 << 24;  // of an instruction descriptor

// A K of 32 in e4m3 (type 0), with one e8m0 scale (bit 23) per row: byte k_block of its word.
__device__ void mma(Mxfp8, int k_block, uint32_t accumulator, uint64_t a, uint64_t b,
                    uint32_t scales_a, uint32_t scales_b, bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %6, 0;\n"
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X "
        "[%0], %1, %2, %3, [%4], [%5], accumulate;\n"
        "}" ::"r"(accumulator),
        "l"(a), "l"(b), "r"(kShape | 1 << 23 | k_block << 29 | k_block << 4), "r"(scales_a),
        "r"(scales_b), "r"(int(accumulate))
        : "memory");
}

// A K of 64 in e2m1 (type 1), with four e4m3 scales per row: scale tile k_block.
__device__ void mma(Nvfp4, int k_block, uint32_t accumulator, uint64_t a, uint64_t b,
                    uint32_t scales_a, uint32_t scales_b, bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %6, 0;\n"
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X "
        "[%0], %1, %2, %3, [%4], [%5], accumulate;\n"
        "}" ::"r"(accumulator),
        "l"(a), "l"(b), "r"(kShape | 1 << 7 | 1 << 10), "r"(scales_a + k_block * 4),
        "r"(scales_b + k_block * 4), "r"(int(accumulate))
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

// The current stage of a pipeline, and the phase of its barriers. A consumer waits for `phase`, a
// producer for the other one.
template <int kCount>
struct PipelineState {
    int index = 0, phase = 0;
    __device__ void advance() {
        if (++index == kCount) index = 0, phase ^= 1;
    }
};

template <class Format>
__global__ void __launch_bounds__(kThreads) matmul_block_scales_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
    const char* scales_a, const char* scales_b, float* c, int m, int n, int row_bytes) {
    extern __shared__ char memory[];
    auto& shared = *reinterpret_cast<Shared<Format>*>(
        (reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    constexpr int scale_tiles = Format::kScaleTiles, scale_bytes = scale_tiles * kScaleTile;
    const int k_tiles = row_bytes / kRowBytes, tiles_n = n / kTileN, tiles = m / kTileM * tiles_n;

    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         smem_address(&shared.columns)),
                     "r"(512)
                     : "memory");
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++) {
            init_barrier(&shared.full[i], 1);
            init_barrier(&shared.empty[i], 1);
        }
        for (int i = 0; i < kAccumulators; i++) {
            init_barrier(&shared.tmem_full[i], 1);
            init_barrier(&shared.tmem_empty[i], kEpilogueThreads);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const uint32_t accumulators = shared.columns;
    PipelineState<kStages> stage;
    PipelineState<kAccumulators> accumulator;

    if (threadIdx.x == kProducerThread) {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
            for (int k_tile = 0; k_tile < k_tiles; k_tile++, stage.advance()) {
                Stage<Format>& to = shared.stages[stage.index];
                uint64_t* const full = &shared.full[stage.index];
                wait(&shared.empty[stage.index], stage.phase ^ 1);
                expect_bytes(full, sizeof(Stage<Format>));
                const int row = tile / tiles_n, column = tile % tiles_n;
                tma_load(to.a, map_a, k_tile * kRowBytes, row * kTileM, full);
                tma_load(to.b, map_b, k_tile * kRowBytes, column * kTileN, full);
                tma_load(to.scales_a, scales_a + size_t(row * k_tiles + k_tile) * scale_bytes,
                         scale_bytes, full);
                tma_load(to.scales_b, scales_b + size_t(column * k_tiles + k_tile) * scale_bytes,
                         scale_bytes, full);
            }
    } else if (threadIdx.x == kMmaThread) {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, accumulator.advance()) {
            wait(&shared.tmem_empty[accumulator.index], accumulator.phase ^ 1);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            for (int k_tile = 0; k_tile < k_tiles; k_tile++, stage.advance()) {
                wait(&shared.full[stage.index], stage.phase);
                const Stage<Format>& from = shared.stages[stage.index];
                const uint64_t a = smem_descriptor(from.a), b = smem_descriptor(from.b);
                // Each stage has its own columns: the MMAs that read them before are complete.
                const uint32_t scales =
                    accumulators + kAccumulators * kTileN + stage.index * 8 * scale_tiles;
                for (int i = 0; i < scale_tiles; i++) {
                    copy_scales(scales + i * 4, from.scales_a + i * kScaleTile);
                    copy_scales(scales + (scale_tiles + i) * 4, from.scales_b + i * kScaleTile);
                }
                // tcgen05.cp and tcgen05.mma of one thread execute in order. A k block is 32 bytes
                // of a row, two units of a descriptor's address.
                for (int k_block = 0; k_block < kRowBytes / 32; k_block++)
                    mma(Format(), k_block, accumulators + accumulator.index * kTileN,
                        a + k_block * 2, b + k_block * 2, scales, scales + scale_tiles * 4,
                        k_tile || k_block);
                commit(&shared.empty[stage.index]);
            }
            commit(&shared.tmem_full[accumulator.index]);
        }
    } else if (threadIdx.x < kEpilogueThreads) {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, accumulator.advance()) {
            wait(&shared.tmem_full[accumulator.index], accumulator.phase);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            float* const row =
                &c[size_t(tile / tiles_n * kTileM + threadIdx.x) * n + tile % tiles_n * kTileN];
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
            arrive(&shared.tmem_empty[accumulator.index]);
        }
    }
    __syncthreads();
    if (threadIdx.x < 32)
        asm volatile(
            "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(accumulators), "r"(512));
}

// The TMA descriptor of a matrix of bytes, for boxes of kTileM rows and kRowBytes columns.
CUresult make_tensor_map(CUtensorMap* map, const void* matrix, int rows, int row_bytes) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!function) return CUDA_ERROR_NOT_FOUND;
    const cuuint64_t extents[] = {cuuint64_t(row_bytes), cuuint64_t(rows)};
    const cuuint64_t strides[] = {cuuint64_t(row_bytes)};
    const cuuint32_t box[] = {kRowBytes, kTileM}, element_strides[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(matrix), extents, strides, box,
        element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

template <class Format>
cudaError_t launch(const void* a, const void* b, const void* scales_a, const void* scales_b,
                   float* c, int m, int n, int row_bytes) {
    if (m % kTileM || n % kTileN || row_bytes % kRowBytes) return cudaErrorInvalidValue;
    CUtensorMap map_a, map_b;
    if (make_tensor_map(&map_a, a, m, row_bytes) || make_tensor_map(&map_b, b, n, row_bytes))
        return cudaErrorInvalidValue;
    int device, processors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const int tiles = (m / kTileM) * (n / kTileN), blocks = tiles < processors ? tiles : processors;
    const auto kernel = matmul_block_scales_kernel<Format>;
    const int bytes = kSharedBytes<Format>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<blocks, kThreads, bytes>>>(map_a, map_b, static_cast<const char*>(scales_a),
                                        static_cast<const char*>(scales_b), c, m, n, row_bytes);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t matmul_mxfp8(const void* a, const void* b, const void* scales_a,
                                    const void* scales_b, float* c, int m, int n, int k) {
    return launch<Mxfp8>(a, b, scales_a, scales_b, c, m, n, k);
}

extern "C" cudaError_t matmul_nvfp4(const void* a, const void* b, const void* scales_a,
                                    const void* scales_b, float* c, int m, int n, int k) {
    return launch<Nvfp4>(a, b, scales_a, scales_b, c, m, n, k / 2);
}
