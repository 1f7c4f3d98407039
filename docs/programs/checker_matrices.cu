// What checker_matrices.py counts: matrices of a warp, and copies in bulk and of tensors. Compiled
// for sm_90a.
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

// Row r lies at r * stride bytes; swizzled, its 16 bytes change places within 128 as TMA has it.
__device__ uint32_t row_at(const char* tile, int stride, int swizzle) {
    const int lane = threadIdx.x;
    uint32_t offset = lane * stride;
    if (swizzle) offset ^= (offset >> 7 & (swizzle / 16 - 1)) << 4;
    return uint32_t(__cvta_generic_to_shared(tile)) + offset;
}

template <int count, bool transposed>
__global__ void shared_read_matrix(float* y, int stride, int swizzle) {
    __shared__ alignas(1024) char tile[32 * 144];
    for (int i = threadIdx.x; i < 32 * 144 / 4; i += 32) reinterpret_cast<int*>(tile)[i] = 0;
    __syncwarp();
    const uint32_t at = row_at(tile, stride, swizzle);
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (count == 1 && !transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(at));
    if (count == 2 && !transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(a), "=r"(b)
                     : "r"(at));
    if (count == 4 && !transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at));
    if (count == 4 && transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at));
    if (a + b + c + d == 12345) y[0] = 1;
}
extern "C" void load_one(float* y, int stride, int swizzle) {
    shared_read_matrix<1, false><<<1, 32>>>(y, stride, swizzle);
}
extern "C" void load_two(float* y, int stride, int swizzle) {
    shared_read_matrix<2, false><<<1, 32>>>(y, stride, swizzle);
}
extern "C" void load_four(float* y, int stride, int swizzle) {
    shared_read_matrix<4, false><<<1, 32>>>(y, stride, swizzle);
}
extern "C" void load_four_transposed(float* y, int stride, int swizzle) {
    shared_read_matrix<4, true><<<1, 32>>>(y, stride, swizzle);
}

template <int count>
__global__ void shared_write_matrix(float* y, int stride, int swizzle) {
    __shared__ alignas(1024) char tile[32 * 144];
    const uint32_t at = row_at(tile, stride, swizzle), a = stride;
    if (count == 1)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(at), "r"(a));
    if (count == 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %1};" ::"r"(at), "r"(a));
    if (count == 4)
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(a));
    __syncwarp();
    volatile const int* seen = reinterpret_cast<const int*>(tile);
    if (seen[0] == 12345) y[0] = 1;
}
extern "C" void store_one(float* y, int stride, int swizzle) {
    shared_write_matrix<1><<<1, 32>>>(y, stride, swizzle);
}
extern "C" void store_two(float* y, int stride, int swizzle) {
    shared_write_matrix<2><<<1, 32>>>(y, stride, swizzle);
}
extern "C" void store_four(float* y, int stride, int swizzle) {
    shared_write_matrix<4><<<1, 32>>>(y, stride, swizzle);
}

// ---- Copies in bulk

__device__ uint32_t begin_phase(uint64_t* barrier, int bytes) {
    const uint32_t at = uint32_t(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("fence.proxy.async;");
    asm volatile(
        "{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(at), "r"(bytes)
        : "memory");
    return at;
}
__device__ void end_phase(uint32_t barrier) {
    asm volatile(
        "{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @p bra done; bra "
        "again; done: }" ::"r"(barrier)
        : "memory");
}

__global__ void bulk_read(const float* x, int bytes, int offset) {
    __shared__ alignas(128) char tile[8192];
    __shared__ uint64_t barrier;
    const uint32_t at = begin_phase(&barrier, bytes);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(uint32_t(__cvta_generic_to_shared(tile))),
        "l"(reinterpret_cast<const char*>(x) + offset), "r"(bytes), "r"(at)
        : "memory");
    end_phase(at);
}
extern "C" void read_bulk(const float* x, float*, int bytes, int offset) {
    bulk_read<<<1, 1>>>(x, bytes, offset);
}

__global__ void bulk_write(float* y, int bytes, int offset) {
    __shared__ alignas(128) float tile[2048];
    for (int i = 0; i < bytes / 4; i++) tile[i] = i;
    asm volatile("fence.proxy.async.shared::cta;");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     reinterpret_cast<char*>(y) + offset),
                 "r"(uint32_t(__cvta_generic_to_shared(tile))), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
extern "C" void write_bulk(const float*, float* y, int bytes, int offset) {
    bulk_write<<<1, 1>>>(y, bytes, offset);
}

__global__ void tensor_read(const __grid_constant__ CUtensorMap map, int bytes, int x) {
    __shared__ alignas(1024) char tile[8192];
    __shared__ uint64_t barrier;
    const uint32_t at = begin_phase(&barrier, bytes);
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3}], [%4];" ::"r"(uint32_t(__cvta_generic_to_shared(tile))),
        "l"(&map), "r"(x), "r"(0), "r"(at)
        : "memory");
    end_phase(at);
}
// Of a matrix of 64 floats a row, a box of so many rows and columns from column x on.
extern "C" void read_tensor(const float* x, float*, int rows, int cols, int first, int swizzle) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
    alignas(64) CUtensorMap map;
    const cuuint64_t extent[] = {64, 64}, stride[] = {256};
    const cuuint32_t box[] = {cuuint32_t(cols), cuuint32_t(rows)}, steps[] = {1, 1};
    reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, const_cast<float*>(x), extent, stride, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
        : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
        : swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                        : CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    tensor_read<<<1, 1>>>(map, rows * cols * 4, first);
}
