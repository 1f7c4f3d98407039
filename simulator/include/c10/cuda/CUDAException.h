// An error of the CUDA runtime becomes an exception of PyTorch's.
#pragma once
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>
#include <c10/util/irange.h>
#include <cuda_runtime.h>
#include "CUDAMacros.h"

namespace c10 {
class CUDAError : public c10::Error {
    using Error::Error;
};

namespace cuda {
// Whoever asks for an error knows of it, so it is no longer the last one.
inline void check(cudaError_t error, const char* function, const char* file, uint32_t line) {
    if (C10_LIKELY(error == cudaSuccess)) return;
    const std::string what = cudaGetErrorString(error);
    (void)cudaGetLastError();
    throw CUDAError({function, file, line}, "CUDA error: " + what);
}
}  // namespace cuda
}  // namespace c10

#define C10_CUDA_CHECK(EXPR)                                                                      \
    do {                                                                                          \
        const cudaError_t simulator_error = EXPR;                                                 \
        ::c10::cuda::check(simulator_error, __func__, __FILE__, static_cast<uint32_t>(__LINE__)); \
    } while (0)
#define C10_CUDA_CHECK_WARN(EXPR)                                              \
    do {                                                                       \
        const cudaError_t simulator_error = EXPR;                              \
        if (C10_UNLIKELY(simulator_error != cudaSuccess)) {                    \
            TORCH_WARN("CUDA warning: ", cudaGetErrorString(simulator_error)); \
            (void)cudaGetLastError();                                          \
        }                                                                      \
    } while (0)
#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_IGNORE_ERROR(EXPR)                          \
    do {                                                     \
        if ((EXPR) != cudaSuccess) (void)cudaGetLastError(); \
    } while (0)
#define C10_CUDA_CLEAR_ERROR()    \
    do {                          \
        (void)cudaGetLastError(); \
    } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
