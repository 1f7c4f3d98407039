// Rung 5: y = a @ b.T of 8-bit (MXFP8) or 4-bit (NVFP4) floats with block scales. The tensor cores
// multiply each block of a row by its scale; scales come to tensor memory by tcgen05.cp.
// a [m, k], b [n, k] e4m3, a scale of e8m0 for each 32 of a row; or e2m1, two in a byte, and a
// scale of e4m3 for each 16. c [m, n] float32. m and n are multiples of 128; k of 128, or of 256.
//
// Scales lie in units of 512 bytes, for 128 rows and 4 blocks of k: that of row r and block j is
// byte r % 32 * 16 + r / 32 * 4 + j. Units are in order of k, then of rows.
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kRows = 128, kColumns = 128, kStages = 4, kAccumulators = 2;
constexpr int kRowBytes = 128;  // of a stage: 128 elements of a row, or 256
constexpr int kUnit = 512;      // of scales: 4 columns of tensor memory
// The epilogue comes first: warp w of a warpgroup reaches lanes 32 w to 32 w + 31.
constexpr int kEpilogue = 128, kProducer = 128, kMultiplier = 160, kThreads = 192;

struct Mxfp8 {
    static constexpr int kUnits = 1;  // of scales, in a stage
};
struct Nvfp4 {
    static constexpr int kUnits = 4;
};

template <class Format>
struct Stage {
    char a[kRows * kRowBytes], b[kColumns * kRowBytes];
    char scales_of_a[Format::kUnits * kUnit], scales_of_b[Format::kUnits * kUnit];
};
template <class Format>
struct Shared {
    Stage<Format> stages[kStages];
    uint64_t full[kStages], empty[kStages];
    uint64_t filled[kAccumulators], drained[kAccumulators];
    uint32_t columns;  // of tensor memory: the accumulators, then the scales of each stage
};
template <class Format>
constexpr int kSharedBytes = sizeof(Shared<Format>) + 1024;  // aligned by the kernel

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

// Bytes in a row.
__device__ void fetch(void* to, const void* from, int bytes, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(address(to)),
        "l"(from), "r"(bytes), "r"(address(barrier))
        : "memory");
}

// Rows of 128 bytes in the 128-byte swizzle, eight of them every 1024 bytes.
__device__ uint64_t descriptor(const void* tile) {
    return uint64_t(address(tile) >> 4 & 0x3fff) | uint64_t(1024 >> 4) << 32 | 1ull << 46 |
           2ull << 61;
}

// A unit of scales, 32 rows of 16 bytes, to all four quarters of the lanes.
__device__ void copy_scales(uint32_t to, const char* unit) {
    const uint64_t from =
        uint64_t(address(unit) >> 4 & 0x3fff) | uint64_t(128 >> 4) << 32 | 1ull << 46;
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from)
                 : "memory");
}

constexpr uint32_t kShape = kColumns / 8 << 17 | kRows / 16 << 24;  // in instruction descriptors

// 32 of k by e4m3 (type 0) with one scale of e8m0 (bit 23) a row: byte `step` of its word.
__device__ void multiply(Mxfp8, int step, uint32_t accumulator, uint64_t a, uint64_t b,
                         uint32_t scales_of_a, uint32_t scales_of_b, bool adds) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %6, 0;\n"
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X "
        "[%0], %1, %2, %3, [%4], [%5], adds;\n"
        "}" ::"r"(accumulator),
        "l"(a), "l"(b), "r"(kShape | 1 << 23 | step << 29 | step << 4), "r"(scales_of_a),
        "r"(scales_of_b), "r"(int(adds))
        : "memory");
}

// 64 of k by e2m1 (type 1) with four scales of e4m3 a row: a unit of its own.
__device__ void multiply(Nvfp4, int step, uint32_t accumulator, uint64_t a, uint64_t b,
                         uint32_t scales_of_a, uint32_t scales_of_b, bool adds) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %6, 0;\n"
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X "
        "[%0], %1, %2, %3, [%4], [%5], adds;\n"
        "}" ::"r"(accumulator),
        "l"(a), "l"(b), "r"(kShape | 1 << 7 | 1 << 10), "r"(scales_of_a + step * 4),
        "r"(scales_of_b + step * 4), "r"(int(adds))
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

template <class Format>
__global__ void __launch_bounds__(kThreads) matmul_block_scales_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
    const char* scales_of_a, const char* scales_of_b, float* c, int m, int n, int row_bytes) {
    extern __shared__ char memory[];
    auto& shared = *reinterpret_cast<Shared<Format>*>(
        (reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    constexpr int units = Format::kUnits, scale_bytes = units * kUnit;
    const int steps = row_bytes / kRowBytes, across = n / kColumns, tiles = m / kRows * across;

    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         address(&shared.columns)),
                     "r"(512)
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
    const uint32_t accumulators = shared.columns;
    Turn<kStages> stage;
    Turn<kAccumulators> use;

    if (threadIdx.x == kProducer) {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
            for (int step = 0; step < steps; step++, stage.next()) {
                Stage<Format>& to = shared.stages[stage.i];
                uint64_t* const full = &shared.full[stage.i];
                wait(&shared.empty[stage.i], (stage.round + 1) % 2);
                expect_bytes(full, sizeof(Stage<Format>));
                const int row = tile / across, column = tile % across;
                fetch(to.a, map_a, step * kRowBytes, row * kRows, full);
                fetch(to.b, map_b, step * kRowBytes, column * kColumns, full);
                fetch(to.scales_of_a, scales_of_a + size_t(row * steps + step) * scale_bytes,
                      scale_bytes, full);
                fetch(to.scales_of_b, scales_of_b + size_t(column * steps + step) * scale_bytes,
                      scale_bytes, full);
            }
    } else if (threadIdx.x == kMultiplier) {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, use.next()) {
            wait(&shared.drained[use.i], (use.round + 1) % 2);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            for (int step = 0; step < steps; step++, stage.next()) {
                wait(&shared.full[stage.i], stage.round % 2);
                const Stage<Format>& from = shared.stages[stage.i];
                const uint64_t a = descriptor(from.a), b = descriptor(from.b);
                // Columns of the stage's own: products that read what was there are done.
                const uint32_t scales =
                    accumulators + kAccumulators * kColumns + stage.i * 8 * units;
                for (int unit = 0; unit < units; unit++) {
                    copy_scales(scales + unit * 4, from.scales_of_a + unit * kUnit);
                    copy_scales(scales + (units + unit) * 4, from.scales_of_b + unit * kUnit);
                }
                // Products wait for copies that the same thread has asked for before.
                for (int at = 0; at < kRowBytes / 32; at++)  // 32 bytes of a row: two units of 16
                    multiply(Format(), at, accumulators + use.i * kColumns, a + at * 2, b + at * 2,
                             scales, scales + units * 4, step || at);
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
        asm volatile(
            "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(accumulators), "r"(512));
}

// Of a matrix in boxes of kRowBytes columns, in bytes.
CUresult encode(CUtensorMap* map, const void* matrix, int rows, int row_bytes) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!function) return CUDA_ERROR_NOT_FOUND;
    const cuuint64_t extents[] = {cuuint64_t(row_bytes), cuuint64_t(rows)};
    const cuuint64_t strides[] = {cuuint64_t(row_bytes)};
    const cuuint32_t box[] = {kRowBytes, kRows}, steps[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(matrix), extents, strides, box,
        steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

template <class Format>
cudaError_t launch(const void* a, const void* b, const void* scales_of_a, const void* scales_of_b,
                   float* c, int m, int n, int row_bytes) {
    CUtensorMap map_a, map_b;
    if (encode(&map_a, a, m, row_bytes) || encode(&map_b, b, n, row_bytes))
        return cudaErrorInvalidValue;
    int device, processors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const int tiles = (m / kRows) * (n / kColumns),
              blocks = tiles < processors ? tiles : processors;
    const auto kernel = matmul_block_scales_kernel<Format>;
    const int bytes = kSharedBytes<Format>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<blocks, kThreads, bytes>>>(map_a, map_b, static_cast<const char*>(scales_of_a),
                                        static_cast<const char*>(scales_of_b), c, m, n, row_bytes);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t matmul_mxfp8(const void* a, const void* b, const void* scales_of_a,
                                    const void* scales_of_b, float* c, int m, int n, int k) {
    return launch<Mxfp8>(a, b, scales_of_a, scales_of_b, c, m, n, k);
}

extern "C" cudaError_t matmul_nvfp4(const void* a, const void* b, const void* scales_of_a,
                                    const void* scales_of_b, float* c, int m, int n, int k) {
    return launch<Nvfp4>(a, b, scales_of_a, scales_of_b, c, m, n, k / 2);
}
