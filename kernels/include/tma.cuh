// The Tensor Memory Accelerator (TMA): one thread starts the copy of a box of a matrix, and its
// bytes go from global to shared memory, or back, while all threads work on something else. What of
// a box lies outside the matrix reads as 0 and is not written. GPUs have it from Hopper on.
//
// Boxes here are tiles of swizzle.cuh: rows of 128 bytes in the 128-byte swizzle.
#pragma once

#include <cuda.h>

#include "mbarrier.cuh"
#include "swizzle.cuh"
#include "vec.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The box from element `column` of row `row` of matrix `batch` on; its bytes arrive at `barrier`,
// which has to expect them.
__device__ inline void tma_load(void* to, const CUtensorMap& map, int column, int row, int batch,
                                Mbarrier& barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(batch), "r"(barrier.address())
        : "memory");
}

// The same for data that is read once: the L2 cache evicts it first.
__device__ inline void tma_load_once(void* to, const CUtensorMap& map, int column, int row,
                                     int batch, Mbarrier& barrier) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(batch), "r"(barrier.address()), "l"(policy)
        : "memory");
}

// Prefetches a box to the L2 cache.
__device__ inline void tma_load_to_l2(const CUtensorMap& map, int column, int row, int batch) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(&map),
                 "r"(column), "r"(row), "r"(batch)
                 : "memory");
}

// To the same place in each block of the cluster whose bit is set in `blocks`, and to its barrier.
__device__ inline void tma_load_multicast(void* to, const CUtensorMap& map, int column, int row,
                                          int batch, Mbarrier& barrier, unsigned blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(batch), "r"(barrier.address()), "h"(uint16_t(blocks))
        : "memory");
}

// Stores a box that threads have written: each of them calls `tma_writes_done` before a barrier,
// and then one thread stores, as a group of its own or in parts that it commits as a group.
__device__ inline void tma_writes_done() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void tma_store_part(const CUtensorMap& map, const void* from, int column, int row,
                                      int batch) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
            &map),
        "r"(column), "r"(row), "r"(batch), "r"(shared_address(from))
        : "memory");
}
__device__ inline void tma_store_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void tma_store(const CUtensorMap& map, const void* from, int column, int row,
                                 int batch) {
    tma_store_part(map, from, column, row, batch);
    tma_store_commit();
}

// The same, but adds the box to what is there; each sum is rounded.
__device__ inline void tma_add(const CUtensorMap& map, const void* from, int column, int row,
                               int batch) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group"
        " [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
        "r"(column), "r"(row), "r"(batch), "r"(shared_address(from))
        : "memory");
    tma_store_commit();
}

// Waits until at most `pending` of this thread's stores still read their boxes.
template <int pending>
__device__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// Waits until all of them are complete.
__device__ inline void tma_store_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif

// ---- on the host

template <class T>
constexpr CUtensorMapDataType tensor_map_type() {
    if (sizeof(T) == 4) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    if (sizeof(T) == 1) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    return std::is_same_v<T, Half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

// A map of a tensor, cut in boxes of `box_rows` rows of 128 bytes. Its dimensions begin with the
// columns, which are contiguous, and the rows; strides: from one row to the next and so on, in
// elements. False: TMA takes no such tensor, for it does not begin on 16 bytes, or a stride is no
// multiple of them. promotion: how much of a row at least is brought to the L2 cache.
constexpr auto kPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
template <class T, int dims>
bool make_tensor_map(CUtensorMap& map, const T* at, const int64_t (&sizes)[dims],
                     const int64_t (&strides)[dims - 1], int box_rows,
                     CUtensorMapL2promotion promotion = kPromotion) {
    static const auto encode = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult status;
        cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
    }();
    cuuint64_t extents[dims], bytes[dims - 1];
    cuuint32_t box[dims], every[dims];
    for (int i = 0; i < dims; ++i) {
        extents[i] = sizes[i];
        if (i > 0) bytes[i - 1] = strides[i - 1] * sizeof(T);
        box[i] = i == 0 ? kTileRow / sizeof(T) : i == 1 ? box_rows : 1;
        every[i] = 1;
    }
    return encode && encode(&map, tensor_map_type<T>(), dims, const_cast<T*>(at), extents, bytes,
                            box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                            promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Of `batch` matrices [rows, cols].
template <class T>
bool make_tensor_map(CUtensorMap& map, const T* at, int64_t batch, int64_t rows, int64_t cols,
                     int64_t batch_stride, int64_t row_stride, int box_rows,
                     CUtensorMapL2promotion promotion = kPromotion) {
    return make_tensor_map<T, 3>(
        map, at, {cols, rows, batch}, {row_stride, batch > 1 ? batch_stride : row_stride}, box_rows,
        promotion);
}
