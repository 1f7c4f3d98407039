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

// Bytes as they lie there: from and to multiples of 16, and so many.
__device__ inline void bulk_load(void* to, const void* from, int bytes, Mbarrier& barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(barrier.address())
        : "memory");
}

#endif

// A map of [batches, heads, rows, cols], cut in boxes of `box_rows` rows of 128 bytes. Strides are
// in elements. False: TMA takes no such tensor.
template <class T>
bool make_tensor_map(CUtensorMap& map, const T* at, int64_t batches, int64_t heads, int64_t rows,
                     int64_t cols, int64_t batch_stride, int64_t head_stride, int64_t row_stride,
                     int box_rows) {
    static const auto encode = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult found;
        cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
    }();
    const cuuint64_t extents[] = {
        cuuint64_t(cols), cuuint64_t(rows), cuuint64_t(heads), cuuint64_t(batches)};
    const cuuint64_t strides[] = {
        row_stride * sizeof(T), head_stride * sizeof(T), batch_stride * sizeof(T)};
    const cuuint32_t box[] = {kTileRow / sizeof(T), cuuint32_t(box_rows), 1, 1};
    const cuuint32_t every[] = {1, 1, 1, 1};
    return encode && encode(&map, tensor_map_type<T>(), 4, const_cast<T*>(at), extents, strides,
                            box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
