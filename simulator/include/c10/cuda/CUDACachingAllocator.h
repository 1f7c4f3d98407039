// Memory from PyTorch's allocator for kernels. Nothing is cached here.
#pragma once
#include <c10/core/Allocator.h>
#include "CUDAStream.h"

namespace c10::cuda::CUDACachingAllocator {
inline void* raw_alloc(size_t bytes) {
    void* address = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&address, bytes));
    return address;
}
inline void* raw_alloc_with_stream(size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
inline void raw_delete(void* address) { C10_CUDA_CHECK(cudaFree(address)); }
inline Allocator* get() { return GetAllocator(DeviceType::CPU); }
inline void emptyCache() {}
inline void recordStream(const DataPtr&, CUDAStream) {}
}  // namespace c10::cuda::CUDACachingAllocator
