// cuBLAS on the CPU: the names and numbers of CUDA's, carried out by PyTorch's own routines for the
// CPU (libraries/cublas.cpp). Matrices are column-major, and a call is over when it returns.
//
// What is not declared here, such as band and packed matrices, the simulator does not have.
#pragma once
#define CUBLAS_API_H_
#include "cuComplex.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "library_types.h"

#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0
#define CUBLAS_VER_PATCH 0
#define CUBLAS_VER_BUILD 0
#define CUBLAS_VERSION (CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH)
#define CUBLASWINAPI
#define CUBLASAPI

enum cublasStatus_t : int {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16,
};

enum cublasFillMode_t : int {
    CUBLAS_FILL_MODE_LOWER = 0,
    CUBLAS_FILL_MODE_UPPER = 1,
    CUBLAS_FILL_MODE_FULL = 2,
};
enum cublasDiagType_t : int { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 };
enum cublasSideMode_t : int { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 };
enum cublasOperation_t : int {
    CUBLAS_OP_N = 0,
    CUBLAS_OP_T = 1,
    CUBLAS_OP_C = 2,
    CUBLAS_OP_HERMITAN = 2,
    CUBLAS_OP_CONJG = 3,
};
enum cublasPointerMode_t : int { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 };
enum cublasAtomicsMode_t : int { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 };

// Whichever is asked for, a sum is taken by the CPU's own routine, in float at least.
enum cublasGemmAlgo_t : int {
    CUBLAS_GEMM_DFALT = -1,
    CUBLAS_GEMM_DEFAULT = -1,
    CUBLAS_GEMM_ALGO0 = 0,
    CUBLAS_GEMM_ALGO1,
    CUBLAS_GEMM_ALGO2,
    CUBLAS_GEMM_ALGO3,
    CUBLAS_GEMM_ALGO4,
    CUBLAS_GEMM_ALGO5,
    CUBLAS_GEMM_ALGO6,
    CUBLAS_GEMM_ALGO7,
    CUBLAS_GEMM_ALGO8,
    CUBLAS_GEMM_ALGO9,
    CUBLAS_GEMM_ALGO10,
    CUBLAS_GEMM_ALGO11,
    CUBLAS_GEMM_ALGO12,
    CUBLAS_GEMM_ALGO13,
    CUBLAS_GEMM_ALGO14,
    CUBLAS_GEMM_ALGO15,
    CUBLAS_GEMM_ALGO16,
    CUBLAS_GEMM_ALGO17,
    CUBLAS_GEMM_ALGO18,
    CUBLAS_GEMM_ALGO19,
    CUBLAS_GEMM_ALGO20,
    CUBLAS_GEMM_ALGO21,
    CUBLAS_GEMM_ALGO22,
    CUBLAS_GEMM_ALGO23,
    CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
    CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
    CUBLAS_GEMM_ALGO0_TENSOR_OP = 100,
    CUBLAS_GEMM_ALGO1_TENSOR_OP,
    CUBLAS_GEMM_ALGO2_TENSOR_OP,
    CUBLAS_GEMM_ALGO3_TENSOR_OP,
    CUBLAS_GEMM_ALGO4_TENSOR_OP,
    CUBLAS_GEMM_ALGO5_TENSOR_OP,
    CUBLAS_GEMM_ALGO6_TENSOR_OP,
    CUBLAS_GEMM_ALGO7_TENSOR_OP,
    CUBLAS_GEMM_ALGO8_TENSOR_OP,
    CUBLAS_GEMM_ALGO9_TENSOR_OP,
    CUBLAS_GEMM_ALGO10_TENSOR_OP,
    CUBLAS_GEMM_ALGO11_TENSOR_OP,
    CUBLAS_GEMM_ALGO12_TENSOR_OP,
    CUBLAS_GEMM_ALGO13_TENSOR_OP,
    CUBLAS_GEMM_ALGO14_TENSOR_OP,
    CUBLAS_GEMM_ALGO15_TENSOR_OP,
    CUBLAS_GEMM_AUTOTUNE = 999,
};

enum cublasMath_t : int {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_FP32_EMULATED_BF16X9_MATH = 4,
    CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH = 8,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
};

enum cublasComputeType_t : int {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_16F_PEDANTIC = 65,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32I = 72,
    CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
    CUBLAS_COMPUTE_32F_EMULATED_16BFX9 = 78,
    CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT = 79,
};

using cublasDataType_t = cudaDataType;
using cublasHandle_t = struct cublasContext*;

namespace simulator::api {
#pragma GCC visibility push(default)

cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasGetVersion(cublasHandle_t handle, int* version);
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value);
size_t cublasGetCudartVersion();
const char* cublasGetStatusName(cublasStatus_t status);
const char* cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream);
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode);
cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t* mode);
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode);
cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t* mode);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode);
cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int count);
cublasStatus_t cublasGetSmCountTarget(cublasHandle_t handle, int* count);

cublasStatus_t cublasSetVector(int n, int size, const void* x, int incx, void* y, int incy);
cublasStatus_t cublasGetVector(int n, int size, const void* x, int incx, void* y, int incy);
cublasStatus_t cublasSetMatrix(int rows, int cols, int size, const void* a, int lda, void* b,
                               int ldb);
cublasStatus_t cublasGetMatrix(int rows, int cols, int size, const void* a, int lda, void* b,
                               int ldb);
cublasStatus_t cublasSetVectorAsync(int n, int size, const void* x, int incx, void* y, int incy,
                                    cudaStream_t stream);
cublasStatus_t cublasGetVectorAsync(int n, int size, const void* x, int incx, void* y, int incy,
                                    cudaStream_t stream);
cublasStatus_t cublasSetMatrixAsync(int rows, int cols, int size, const void* a, int lda, void* b,
                                    int ldb, cudaStream_t stream);
cublasStatus_t cublasGetMatrixAsync(int rows, int cols, int size, const void* a, int lda, void* b,
                                    int ldb, cudaStream_t stream);

// Of each type, which has a letter in the functions' names.
#define SIMULATOR_HANDLE cublasHandle_t handle
#define SIMULATOR_SIDE cublasSideMode_t side, cublasFillMode_t uplo
#define SIMULATOR_TRIANGLE cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag

#define SIMULATOR_BLAS_GEMM(S, T)                                                                  \
    cublasStatus_t cublas##S##gemm(                                                                \
        SIMULATOR_HANDLE, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, \
        const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc);   \
    cublasStatus_t cublas##S##gemmBatched(                                                         \
        SIMULATOR_HANDLE, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, \
        const T* alpha, const T* const a[], int lda, const T* const b[], int ldb, const T* beta,   \
        T* const c[], int ldc, int batches);                                                       \
    cublasStatus_t cublas##S##gemmStridedBatched(                                                  \
        SIMULATOR_HANDLE, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, \
        const T* alpha, const T* a, int lda, long long stridea, const T* b, int ldb,               \
        long long strideb, const T* beta, T* c, int ldc, long long stridec, int batches);

#define SIMULATOR_BLAS(S, T)                                                                       \
    cublasStatus_t cublas##S##axpy(                                                                \
        SIMULATOR_HANDLE, int n, const T* alpha, const T* x, int incx, T* y, int incy);            \
    cublasStatus_t cublas##S##copy(SIMULATOR_HANDLE, int n, const T* x, int incx, T* y, int incy); \
    cublasStatus_t cublas##S##swap(SIMULATOR_HANDLE, int n, T* x, int incx, T* y, int incy);       \
    cublasStatus_t cublas##S##scal(SIMULATOR_HANDLE, int n, const T* alpha, T* x, int incx);       \
                                                                                                   \
    cublasStatus_t cublas##S##gemv(                                                                \
        SIMULATOR_HANDLE, cublasOperation_t trans, int m, int n, const T* alpha, const T* a,       \
        int lda, const T* x, int incx, const T* beta, T* y, int incy);                             \
    cublasStatus_t cublas##S##symv(                                                                \
        SIMULATOR_HANDLE, cublasFillMode_t uplo, int n, const T* alpha, const T* a, int lda,       \
        const T* x, int incx, const T* beta, T* y, int incy);                                      \
    cublasStatus_t cublas##S##syr(SIMULATOR_HANDLE, cublasFillMode_t uplo, int n, const T* alpha,  \
                                  const T* x, int incx, T* a, int lda);                            \
    cublasStatus_t cublas##S##syr2(SIMULATOR_HANDLE, cublasFillMode_t uplo, int n, const T* alpha, \
                                   const T* x, int incx, const T* y, int incy, T* a, int lda);     \
    cublasStatus_t cublas##S##trmv(                                                                \
        SIMULATOR_HANDLE, SIMULATOR_TRIANGLE, int n, const T* a, int lda, T* x, int incx);         \
    cublasStatus_t cublas##S##trsv(                                                                \
        SIMULATOR_HANDLE, SIMULATOR_TRIANGLE, int n, const T* a, int lda, T* x, int incx);         \
                                                                                                   \
    SIMULATOR_BLAS_GEMM(S, T)                                                                      \
    cublasStatus_t cublas##S##symm(                                                                \
        SIMULATOR_HANDLE, SIMULATOR_SIDE, int m, int n, const T* alpha, const T* a, int lda,       \
        const T* b, int ldb, const T* beta, T* c, int ldc);                                        \
    cublasStatus_t cublas##S##syrk(                                                                \
        SIMULATOR_HANDLE, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k,            \
        const T* alpha, const T* a, int lda, const T* beta, T* c, int ldc);                        \
    cublasStatus_t cublas##S##syr2k(                                                               \
        SIMULATOR_HANDLE, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k,            \
        const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc);   \
    cublasStatus_t cublas##S##syrkx(                                                               \
        SIMULATOR_HANDLE, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k,            \
        const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc);   \
    cublasStatus_t cublas##S##trmm(                                                                \
        SIMULATOR_HANDLE, cublasSideMode_t side, SIMULATOR_TRIANGLE, int m, int n, const T* alpha, \
        const T* a, int lda, const T* b, int ldb, T* c, int ldc);                                  \
    cublasStatus_t cublas##S##trsm(                                                                \
        SIMULATOR_HANDLE, cublasSideMode_t side, SIMULATOR_TRIANGLE, int m, int n, const T* alpha, \
        const T* a, int lda, T* b, int ldb);                                                       \
    cublasStatus_t cublas##S##trsmBatched(                                                         \
        SIMULATOR_HANDLE, cublasSideMode_t side, SIMULATOR_TRIANGLE, int m, int n, const T* alpha, \
        const T* const a[], int lda, T* const b[], int ldb, int batches);                          \
                                                                                                   \
    cublasStatus_t cublas##S##geam(                                                                \
        SIMULATOR_HANDLE, cublasOperation_t transa, cublasOperation_t transb, int m, int n,        \
        const T* alpha, const T* a, int lda, const T* beta, const T* b, int ldb, T* c, int ldc);   \
    cublasStatus_t cublas##S##dgmm(SIMULATOR_HANDLE, cublasSideMode_t side, int m, int n,          \
                                   const T* a, int lda, const T* x, int incx, T* c, int ldc);      \
    cublasStatus_t cublas##S##getrfBatched(                                                        \
        SIMULATOR_HANDLE, int n, T* const a[], int lda, int* pivots, int* info, int batches);      \
    cublasStatus_t cublas##S##getrsBatched(                                                        \
        SIMULATOR_HANDLE, cublasOperation_t trans, int n, int columns, const T* const a[],         \
        int lda, const int* pivots, T* const b[], int ldb, int* info, int batches);                \
    cublasStatus_t cublas##S##getriBatched(                                                        \
        SIMULATOR_HANDLE, int n, const T* const a[], int lda, const int* pivots, T* const c[],     \
        int ldc, int* info, int batches);                                                          \
    cublasStatus_t cublas##S##matinvBatched(SIMULATOR_HANDLE, int n, const T* const a[], int lda,  \
                                            T* const c[], int ldc, int* info, int batches);

#define SIMULATOR_BLAS_REAL(S, T)                                                             \
    cublasStatus_t cublas##S##dot(                                                            \
        SIMULATOR_HANDLE, int n, const T* x, int incx, const T* y, int incy, T* result);      \
    cublasStatus_t cublas##S##ger(SIMULATOR_HANDLE, int m, int n, const T* alpha, const T* x, \
                                  int incx, const T* y, int incy, T* a, int lda);             \
    cublasStatus_t cublas##S##rotm(                                                           \
        SIMULATOR_HANDLE, int n, T* x, int incx, T* y, int incy, const T* parameters);

// R is the type of a complex number's parts.
#define SIMULATOR_BLAS_COMPLEX(S, T, R)                                                            \
    cublasStatus_t cublas##S##dotu(                                                                \
        SIMULATOR_HANDLE, int n, const T* x, int incx, const T* y, int incy, T* result);           \
    cublasStatus_t cublas##S##dotc(                                                                \
        SIMULATOR_HANDLE, int n, const T* x, int incx, const T* y, int incy, T* result);           \
    cublasStatus_t cublas##S##geru(SIMULATOR_HANDLE, int m, int n, const T* alpha, const T* x,     \
                                   int incx, const T* y, int incy, T* a, int lda);                 \
    cublasStatus_t cublas##S##gerc(SIMULATOR_HANDLE, int m, int n, const T* alpha, const T* x,     \
                                   int incx, const T* y, int incy, T* a, int lda);                 \
    cublasStatus_t cublas##S##hemv(                                                                \
        SIMULATOR_HANDLE, cublasFillMode_t uplo, int n, const T* alpha, const T* a, int lda,       \
        const T* x, int incx, const T* beta, T* y, int incy);                                      \
    cublasStatus_t cublas##S##her(SIMULATOR_HANDLE, cublasFillMode_t uplo, int n, const R* alpha,  \
                                  const T* x, int incx, T* a, int lda);                            \
    cublasStatus_t cublas##S##her2(SIMULATOR_HANDLE, cublasFillMode_t uplo, int n, const T* alpha, \
                                   const T* x, int incx, const T* y, int incy, T* a, int lda);     \
    cublasStatus_t cublas##S##hemm(                                                                \
        SIMULATOR_HANDLE, SIMULATOR_SIDE, int m, int n, const T* alpha, const T* a, int lda,       \
        const T* b, int ldb, const T* beta, T* c, int ldc);                                        \
    cublasStatus_t cublas##S##herk(                                                                \
        SIMULATOR_HANDLE, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k,            \
        const R* alpha, const T* a, int lda, const R* beta, T* c, int ldc);                        \
    cublasStatus_t cublas##S##her2k(                                                               \
        SIMULATOR_HANDLE, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k,            \
        const T* alpha, const T* a, int lda, const T* b, int ldb, const R* beta, T* c, int ldc);

// Whose names hold the letter of what they return, too. A rotation of a vector of T has a cosine of
// R and a sine of T or R.
#define SIMULATOR_BLAS_MEASURES(amax, amin, asum, nrm2, T, R)                        \
    cublasStatus_t amax(SIMULATOR_HANDLE, int n, const T* x, int incx, int* result); \
    cublasStatus_t amin(SIMULATOR_HANDLE, int n, const T* x, int incx, int* result); \
    cublasStatus_t asum(SIMULATOR_HANDLE, int n, const T* x, int incx, R* result);   \
    cublasStatus_t nrm2(SIMULATOR_HANDLE, int n, const T* x, int incx, R* result);
#define SIMULATOR_BLAS_ROT(rot, T, R, Sine)                                                      \
    cublasStatus_t rot(SIMULATOR_HANDLE, int n, T* x, int incx, T* y, int incy, const R* cosine, \
                       const Sine* sine);
#define SIMULATOR_BLAS_ROTG(rotg, T, R) \
    cublasStatus_t rotg(SIMULATOR_HANDLE, T* a, T* b, R* cosine, T* sine);

SIMULATOR_BLAS(S, float)
SIMULATOR_BLAS(D, double)
SIMULATOR_BLAS(C, cuComplex)
SIMULATOR_BLAS(Z, cuDoubleComplex)
SIMULATOR_BLAS_GEMM(H, __half)
SIMULATOR_BLAS_REAL(S, float)
SIMULATOR_BLAS_REAL(D, double)
SIMULATOR_BLAS_COMPLEX(C, cuComplex, float)
SIMULATOR_BLAS_COMPLEX(Z, cuDoubleComplex, double)
SIMULATOR_BLAS_MEASURES(cublasIsamax, cublasIsamin, cublasSasum, cublasSnrm2, float, float)
SIMULATOR_BLAS_MEASURES(cublasIdamax, cublasIdamin, cublasDasum, cublasDnrm2, double, double)
SIMULATOR_BLAS_MEASURES(cublasIcamax, cublasIcamin, cublasScasum, cublasScnrm2, cuComplex, float)
SIMULATOR_BLAS_MEASURES(cublasIzamax, cublasIzamin, cublasDzasum, cublasDznrm2, cuDoubleComplex,
                        double)
SIMULATOR_BLAS_ROT(cublasSrot, float, float, float)
SIMULATOR_BLAS_ROT(cublasDrot, double, double, double)
SIMULATOR_BLAS_ROT(cublasCrot, cuComplex, float, cuComplex)
SIMULATOR_BLAS_ROT(cublasZrot, cuDoubleComplex, double, cuDoubleComplex)
SIMULATOR_BLAS_ROT(cublasCsrot, cuComplex, float, float)
SIMULATOR_BLAS_ROT(cublasZdrot, cuDoubleComplex, double, double)
SIMULATOR_BLAS_ROTG(cublasSrotg, float, float)
SIMULATOR_BLAS_ROTG(cublasDrotg, double, double)
SIMULATOR_BLAS_ROTG(cublasCrotg, cuComplex, float)
SIMULATOR_BLAS_ROTG(cublasZrotg, cuDoubleComplex, double)
cublasStatus_t cublasCsscal(SIMULATOR_HANDLE, int n, const float* alpha, cuComplex* x, int incx);
cublasStatus_t cublasZdscal(SIMULATOR_HANDLE, int n, const double* alpha, cuDoubleComplex* x,
                            int incx);
#undef SIMULATOR_BLAS_ROTG
#undef SIMULATOR_BLAS_ROT
#undef SIMULATOR_BLAS_MEASURES
#undef SIMULATOR_BLAS_COMPLEX
#undef SIMULATOR_BLAS_REAL
#undef SIMULATOR_BLAS
#undef SIMULATOR_BLAS_GEMM
#undef SIMULATOR_TRIANGLE
#undef SIMULATOR_SIDE
#undef SIMULATOR_HANDLE

// Of types that are named as the function is called: 8-bit integers, half, bfloat16 and all above.
cublasStatus_t cublasGemmEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType atype, int lda, const void* b,
    cudaDataType btype, int ldb, const void* beta, void* c, cudaDataType ctype, int ldc,
    cublasComputeType_t compute, cublasGemmAlgo_t algo);
cublasStatus_t cublasGemmBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* const a[], cudaDataType atype, int lda, const void* const b[],
    cudaDataType btype, int ldb, const void* beta, void* const c[], cudaDataType ctype, int ldc,
    int batches, cublasComputeType_t compute, cublasGemmAlgo_t algo);
cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType atype, int lda, long long stridea, const void* b,
    cudaDataType btype, int ldb, long long strideb, const void* beta, void* c, cudaDataType ctype,
    int ldc, long long stridec, int batches, cublasComputeType_t compute, cublasGemmAlgo_t algo);
cublasStatus_t cublasSgemmEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const float* alpha, const void* a, cudaDataType atype, int lda, const void* b,
    cudaDataType btype, int ldb, const float* beta, void* c, cudaDataType ctype, int ldc);

#pragma GCC visibility pop

// As before CUDA 11, by the type of the numbers in which is computed.
inline cublasComputeType_t simulator_compute_of(cudaDataType type) {
    switch (type) {
        case CUDA_R_16F:
            return CUBLAS_COMPUTE_16F;
        case CUDA_R_32F:
        case CUDA_C_32F:
            return CUBLAS_COMPUTE_32F;
        case CUDA_R_64F:
        case CUDA_C_64F:
            return CUBLAS_COMPUTE_64F;
        case CUDA_R_32I:
            return CUBLAS_COMPUTE_32I;
        default:
            return cublasComputeType_t(-1);
    }
}
inline cublasStatus_t cublasGemmEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType atype, int lda, const void* b,
    cudaDataType btype, int ldb, const void* beta, void* c, cudaDataType ctype, int ldc,
    cudaDataType compute, cublasGemmAlgo_t algo) {
    return cublasGemmEx(handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta,
                        c, ctype, ldc, simulator_compute_of(compute), algo);
}
inline cublasStatus_t cublasGemmBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* const a[], cudaDataType atype, int lda, const void* const b[],
    cudaDataType btype, int ldb, const void* beta, void* const c[], cudaDataType ctype, int ldc,
    int batches, cudaDataType compute, cublasGemmAlgo_t algo) {
    return cublasGemmBatchedEx(handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb,
                               beta, c, ctype, ldc, batches, simulator_compute_of(compute), algo);
}
inline cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType atype, int lda, long long stridea, const void* b,
    cudaDataType btype, int ldb, long long strideb, const void* beta, void* c, cudaDataType ctype,
    int ldc, long long stridec, int batches, cudaDataType compute, cublasGemmAlgo_t algo) {
    return cublasGemmStridedBatchedEx(
        handle, transa, transb, m, n, k, alpha, a, atype, lda, stridea, b, btype, ldb, strideb,
        beta, c, ctype, ldc, stridec, batches, simulator_compute_of(compute), algo);
}

}  // namespace simulator::api
using namespace simulator::api;
