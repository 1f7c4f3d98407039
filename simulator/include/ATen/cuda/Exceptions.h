#pragma once
#include <c10/cuda/CUDAException.h>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define TORCH_CUDABLAS_CHECK(EXPR)                                                               \
    do {                                                                                         \
        const cublasStatus_t simulator_status = EXPR;                                            \
        TORCH_CHECK(simulator_status == CUBLAS_STATUS_SUCCESS, "CUDA error: cuBLAS' status is ", \
                    int(simulator_status), " when calling `" #EXPR "`");                         \
    } while (0)
