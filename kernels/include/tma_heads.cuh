// Boxes by TMA (tma.cuh) of tensors with batches and heads, whose strides need not be packed.
#pragma once

#include "tma.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The box from element `column` of row `row` on.
__device__ inline void tma_load(void* to, const CUtensorMap& map, int column, int row, int head,
                                int batch, Mbarrier& barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier.address())
        : "memory");
}

// Stores to such a place. tma_store in tma.cuh is the same for three dimensions.
__device__ inline void tma_store(const CUtensorMap& map, const void* from, int column, int row,
                                 int head, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
            &map),
        "r"(column), "r"(row), "r"(head), "r"(batch), "r"(shared_address(from))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Bytes as they lie there: from and to multiples of 16, and so many.
__device__ inline void bulk_load(void* to, const void* from, int bytes, Mbarrier& barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(barrier.address())
        : "memory");
}

// The same to global memory, each as a group of its own; or floats, added to those there.
__device__ inline void bulk_store(void* to, const void* from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void bulk_add(float* to, const float* from, int bytes) {
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
        "r"(shared_address(from)), "r"(bytes)
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

#endif

// A map of [batches, heads, rows, cols].
template <class T>
bool make_tensor_map(CUtensorMap& map, const T* at, int64_t batches, int64_t heads, int64_t rows,
                     int64_t cols, int64_t batch_stride, int64_t head_stride, int64_t row_stride,
                     int box_rows) {
    return make_tensor_map<T, 4>(
        map, at, {cols, rows, heads, batches}, {row_stride, head_stride, batch_stride}, box_rows);
}
