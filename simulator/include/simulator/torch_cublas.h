// cuBLAS as PyTorch hands it out. Only who speaks of cuBLAS gets this header, for its library is
// compiled when it is first wanted.
#pragma once
#include <c10/cuda/CUDAStream.h>
#include "../cublasLt.h"
#include "../cublas_v2.h"

namespace at::cuda {

inline cublasHandle_t getCurrentCUDABlasHandle(bool = true) {
    static cublasHandle_t handle = [] {
        cublasHandle_t made = nullptr;
        TORCH_CHECK(cublasCreate(&made) == CUBLAS_STATUS_SUCCESS, "cuBLAS gave no handle");
        return made;
    }();
    cublasSetStream(handle, c10::cuda::getCurrentCUDAStream());
    return handle;
}

inline cublasLtHandle_t getCurrentCUDABlasLtHandle() {
    static cublasLtHandle_t handle = [] {
        cublasLtHandle_t made = nullptr;
        TORCH_CHECK(cublasLtCreate(&made) == CUBLAS_STATUS_SUCCESS, "cuBLASLt gave no handle");
        return made;
    }();
    return handle;
}

}  // namespace at::cuda
