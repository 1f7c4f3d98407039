// cuBLAS and cuBLASLt for kernels that run on the CPU: what include/cublas_api.h and cublasLt.h
// declare. Compiled once, like the simulator's runtime, and opened when a kernel includes them.
//
// To read it: cublas/elements.h says how elements become numbers, matrices.h how PyTorch multiplies
// them, products.h what gemm and cublasLtMatmul are, calls.h how the arguments are checked.
#include "cublas/light.h"
#include "cublas/matrix_calls.h"
#include "cublas/settings.h"

using namespace simulator::cublas;

namespace simulator::api {

// ---- Products

using Op = cublasOperation_t;

#define SIMULATOR_GEMM(S, T)                                                                       \
    cublasStatus_t cublas##S##gemm(                                                                \
        cublasHandle_t handle, Op opa, Op opb, int m, int n, int k, const T* alpha, const T* a,    \
        int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {                              \
        return gemm(handle, opa, opb, m, n, k, alpha, given(a, lda), given(b, ldb), beta,          \
                    given(c, ldc), 1, compute_of<T>);                                              \
    }                                                                                              \
    cublasStatus_t cublas##S##gemmBatched(                                                         \
        cublasHandle_t handle, Op opa, Op opb, int m, int n, int k, const T* alpha,                \
        const T* const a[], int lda, const T* const b[], int ldb, const T* beta, T* const c[],     \
        int ldc, int batches) {                                                                    \
        return gemm(handle, opa, opb, m, n, k, alpha, given<T>(a, lda), given<T>(b, ldb), beta,    \
                    given<T>(c, ldc), batches, compute_of<T>);                                     \
    }                                                                                              \
    cublasStatus_t cublas##S##gemmStridedBatched(                                                  \
        cublasHandle_t handle, Op opa, Op opb, int m, int n, int k, const T* alpha, const T* a,    \
        int lda, long long stridea, const T* b, int ldb, long long strideb, const T* beta, T* c,   \
        int ldc, long long stridec, int batches) {                                                 \
        return gemm(handle, opa, opb, m, n, k, alpha, given(a, lda, stridea),                      \
                    given(b, ldb, strideb), beta, given(c, ldc, stridec), batches, compute_of<T>); \
    }

cublasStatus_t cublasGemmEx(
    cublasHandle_t handle, Op opa, Op opb, int m, int n, int k, const void* alpha, const void* a,
    cudaDataType atype, int lda, const void* b, cudaDataType btype, int ldb, const void* beta,
    void* c, cudaDataType ctype, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {
    return gemm(handle, opa, opb, m, n, k, alpha, {a, atype, lda}, {b, btype, ldb}, beta,
                {c, ctype, ldc}, 1, compute);
}
cublasStatus_t cublasGemmBatchedEx(
    cublasHandle_t handle, Op opa, Op opb, int m, int n, int k, const void* alpha,
    const void* const a[], cudaDataType atype, int lda, const void* const b[], cudaDataType btype,
    int ldb, const void* beta, void* const c[], cudaDataType ctype, int ldc, int batches,
    cublasComputeType_t compute, cublasGemmAlgo_t) {
    return gemm(handle, opa, opb, m, n, k, alpha, {nullptr, atype, lda, 0, a},
                {nullptr, btype, ldb, 0, b}, beta, {nullptr, ctype, ldc, 0, c}, batches, compute);
}
cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, Op opa, Op opb, int m, int n, int k, const void* alpha, const void* a,
    cudaDataType atype, int lda, long long stridea, const void* b, cudaDataType btype, int ldb,
    long long strideb, const void* beta, void* c, cudaDataType ctype, int ldc, long long stridec,
    int batches, cublasComputeType_t compute, cublasGemmAlgo_t) {
    return gemm(handle, opa, opb, m, n, k, alpha, {a, atype, lda, stridea},
                {b, btype, ldb, strideb}, beta, {c, ctype, ldc, stridec}, batches, compute);
}
cublasStatus_t cublasSgemmEx(cublasHandle_t handle, Op opa, Op opb, int m, int n, int k,
                             const float* alpha, const void* a, cudaDataType atype, int lda,
                             const void* b, cudaDataType btype, int ldb, const float* beta, void* c,
                             cudaDataType ctype, int ldc) {
    return gemm(handle, opa, opb, m, n, k, alpha, {a, atype, lda}, {b, btype, ldb}, beta,
                {c, ctype, ldc}, 1, CUBLAS_COMPUTE_32F);
}

// ---- Of each type

#define SIMULATOR_BLAS(S, T)                                                                       \
    cublasStatus_t cublas##S##axpy(                                                                \
        cublasHandle_t handle, int n, const T* alpha, const T* x, int incx, T* y, int incy) {      \
        return axpy(handle, n, alpha, x, incx, y, incy);                                           \
    }                                                                                              \
    cublasStatus_t cublas##S##copy(                                                                \
        cublasHandle_t handle, int n, const T* x, int incx, T* y, int incy) {                      \
        return on_vectors(handle, n, x, incx, y, incy, [n](auto from, auto to) {                   \
            for (int64_t i = 0; i < n; i++) to[i] = from[i];                                       \
        });                                                                                        \
    }                                                                                              \
    cublasStatus_t cublas##S##swap(cublasHandle_t handle, int n, T* x, int incx, T* y, int incy) { \
        return on_vectors(handle, n, x, incx, y, incy, [n](auto a, auto b) {                       \
            for (int64_t i = 0; i < n; i++) std::swap(a[i], b[i]);                                 \
        });                                                                                        \
    }                                                                                              \
    cublasStatus_t cublas##S##scal(cublasHandle_t handle, int n, const T* alpha, T* x, int incx) { \
        return scal(handle, n, alpha, x, incx);                                                    \
    }                                                                                              \
    cublasStatus_t cublas##S##gemv(                                                                \
        cublasHandle_t handle, Op op, int m, int n, const T* alpha, const T* a, int lda,           \
        const T* x, int incx, const T* beta, T* y, int incy) {                                     \
        return gemv(handle, op, m, n, alpha, a, lda, x, incx, beta, y, incy);                      \
    }                                                                                              \
    cublasStatus_t cublas##S##symv(                                                                \
        cublasHandle_t handle, cublasFillMode_t uplo, int n, const T* alpha, const T* a, int lda,  \
        const T* x, int incx, const T* beta, T* y, int incy) {                                     \
        return symv<false>(handle, uplo, n, alpha, a, lda, x, incx, beta, y, incy);                \
    }                                                                                              \
    cublasStatus_t cublas##S##syr(cublasHandle_t handle, cublasFillMode_t uplo, int n,             \
                                  const T* alpha, const T* x, int incx, T* a, int lda) {           \
        return syr<false>(handle, uplo, n, alpha, x, incx, x, incx, a, lda, false);                \
    }                                                                                              \
    cublasStatus_t cublas##S##syr2(                                                                \
        cublasHandle_t handle, cublasFillMode_t uplo, int n, const T* alpha, const T* x, int incx, \
        const T* y, int incy, T* a, int lda) {                                                     \
        return syr<false>(handle, uplo, n, alpha, x, incx, y, incy, a, lda, true);                 \
    }                                                                                              \
    cublasStatus_t cublas##S##trmv(                                                                \
        cublasHandle_t handle, cublasFillMode_t uplo, Op op, cublasDiagType_t diag, int n,         \
        const T* a, int lda, T* x, int incx) {                                                     \
        return trmv(handle, uplo, op, diag, n, a, lda, x, incx, false);                            \
    }                                                                                              \
    cublasStatus_t cublas##S##trsv(                                                                \
        cublasHandle_t handle, cublasFillMode_t uplo, Op op, cublasDiagType_t diag, int n,         \
        const T* a, int lda, T* x, int incx) {                                                     \
        return trmv(handle, uplo, op, diag, n, a, lda, x, incx, true);                             \
    }                                                                                              \
    SIMULATOR_GEMM(S, T)                                                                           \
    cublasStatus_t cublas##S##symm(                                                                \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n,         \
        const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {  \
        return symm<false>(handle, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc);         \
    }                                                                                              \
    cublasStatus_t cublas##S##syrk(                                                                \
        cublasHandle_t handle, cublasFillMode_t uplo, Op op, int n, int k, const T* alpha,         \
        const T* a, int lda, const T* beta, T* c, int ldc) {                                       \
        return syrk<false>(handle, uplo, op, n, k, alpha, a, lda, a, lda, beta, c, ldc, false);    \
    }                                                                                              \
    cublasStatus_t cublas##S##syr2k(                                                               \
        cublasHandle_t handle, cublasFillMode_t uplo, Op op, int n, int k, const T* alpha,         \
        const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {                  \
        return syrk<false>(handle, uplo, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc, true);     \
    }                                                                                              \
    cublasStatus_t cublas##S##syrkx(                                                               \
        cublasHandle_t handle, cublasFillMode_t uplo, Op op, int n, int k, const T* alpha,         \
        const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {                  \
        return syrk<false>(handle, uplo, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc, false);    \
    }                                                                                              \
    cublasStatus_t cublas##S##trmm(                                                                \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, Op op,                \
        cublasDiagType_t diag, int m, int n, const T* alpha, const T* a, int lda, const T* b,      \
        int ldb, T* c, int ldc) {                                                                  \
        return trmm(handle, side, uplo, op, diag, m, n, alpha, a, lda, b, ldb, c, ldc);            \
    }                                                                                              \
    cublasStatus_t cublas##S##trsm(                                                                \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, Op op,                \
        cublasDiagType_t diag, int m, int n, const T* alpha, const T* a, int lda, T* b, int ldb) { \
        return trsm(handle, side, uplo, op, diag, m, n, alpha, a, lda, b, ldb);                    \
    }                                                                                              \
    cublasStatus_t cublas##S##trsmBatched(                                                         \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, Op op,                \
        cublasDiagType_t diag, int m, int n, const T* alpha, const T* const a[], int lda,          \
        T* const b[], int ldb, int batches) {                                                      \
        return trsm<T>(handle, side, uplo, op, diag, m, n, alpha, a, lda, b, ldb, batches);        \
    }                                                                                              \
    cublasStatus_t cublas##S##geam(                                                                \
        cublasHandle_t handle, Op opa, Op opb, int m, int n, const T* alpha, const T* a, int lda,  \
        const T* beta, const T* b, int ldb, T* c, int ldc) {                                       \
        return geam(handle, opa, opb, m, n, alpha, a, lda, beta, b, ldb, c, ldc);                  \
    }                                                                                              \
    cublasStatus_t cublas##S##dgmm(cublasHandle_t handle, cublasSideMode_t side, int m, int n,     \
                                   const T* a, int lda, const T* x, int incx, T* c, int ldc) {     \
        return dgmm(handle, side, m, n, a, lda, x, incx, c, ldc);                                  \
    }                                                                                              \
    cublasStatus_t cublas##S##getrfBatched(cublasHandle_t handle, int n, T* const a[], int lda,    \
                                           int* pivots, int* info, int batches) {                  \
        return getrf(handle, n, a, lda, pivots, info, batches);                                    \
    }                                                                                              \
    cublasStatus_t cublas##S##getrsBatched(                                                        \
        cublasHandle_t handle, Op op, int n, int columns, const T* const a[], int lda,             \
        const int* pivots, T* const b[], int ldb, int* info, int batches) {                        \
        return getrs(handle, op, n, columns, a, lda, pivots, b, ldb, info, batches);               \
    }                                                                                              \
    cublasStatus_t cublas##S##getriBatched(                                                        \
        cublasHandle_t handle, int n, const T* const a[], int lda, const int* pivots,              \
        T* const c[], int ldc, int* info, int batches) {                                           \
        return getri(handle, n, a, lda, pivots, c, ldc, info, batches, false);                     \
    }                                                                                              \
    cublasStatus_t cublas##S##matinvBatched(                                                       \
        cublasHandle_t handle, int n, const T* const a[], int lda, T* const c[], int ldc,          \
        int* info, int batches) {                                                                  \
        if (n > 32) return CUBLAS_STATUS_INVALID_VALUE;                                            \
        return getri(handle, n, a, lda, nullptr, c, ldc, info, batches, true);                     \
    }

#define SIMULATOR_BLAS_REAL(S, T)                                                                  \
    cublasStatus_t cublas##S##dot(                                                                 \
        cublasHandle_t handle, int n, const T* x, int incx, const T* y, int incy, T* result) {     \
        return dot<false>(handle, n, x, incx, y, incy, result);                                    \
    }                                                                                              \
    cublasStatus_t cublas##S##ger(cublasHandle_t handle, int m, int n, const T* alpha, const T* x, \
                                  int incx, const T* y, int incy, T* a, int lda) {                 \
        return ger<false>(handle, m, n, alpha, x, incx, y, incy, a, lda);                          \
    }                                                                                              \
    cublasStatus_t cublas##S##rotm(                                                                \
        cublasHandle_t handle, int n, T* x, int incx, T* y, int incy, const T* parameters) {       \
        SIMULATOR_CUBLAS_VALID(parameters);                                                        \
        return on_vectors(handle, n, x, incx, y, incy,                                             \
                          [=](auto a, auto b) { rotate_modified(n, a, b, parameters); });          \
    }

#define SIMULATOR_BLAS_COMPLEX(S, T, R)                                                            \
    cublasStatus_t cublas##S##dotu(                                                                \
        cublasHandle_t handle, int n, const T* x, int incx, const T* y, int incy, T* result) {     \
        return dot<false>(handle, n, x, incx, y, incy, result);                                    \
    }                                                                                              \
    cublasStatus_t cublas##S##dotc(                                                                \
        cublasHandle_t handle, int n, const T* x, int incx, const T* y, int incy, T* result) {     \
        return dot<true>(handle, n, x, incx, y, incy, result);                                     \
    }                                                                                              \
    cublasStatus_t cublas##S##geru(cublasHandle_t handle, int m, int n, const T* alpha,            \
                                   const T* x, int incx, const T* y, int incy, T* a, int lda) {    \
        return ger<false>(handle, m, n, alpha, x, incx, y, incy, a, lda);                          \
    }                                                                                              \
    cublasStatus_t cublas##S##gerc(cublasHandle_t handle, int m, int n, const T* alpha,            \
                                   const T* x, int incx, const T* y, int incy, T* a, int lda) {    \
        return ger<true>(handle, m, n, alpha, x, incx, y, incy, a, lda);                           \
    }                                                                                              \
    cublasStatus_t cublas##S##hemv(                                                                \
        cublasHandle_t handle, cublasFillMode_t uplo, int n, const T* alpha, const T* a, int lda,  \
        const T* x, int incx, const T* beta, T* y, int incy) {                                     \
        return symv<true>(handle, uplo, n, alpha, a, lda, x, incx, beta, y, incy);                 \
    }                                                                                              \
    cublasStatus_t cublas##S##her(cublasHandle_t handle, cublasFillMode_t uplo, int n,             \
                                  const R* alpha, const T* x, int incx, T* a, int lda) {           \
        return syr<true>(handle, uplo, n, alpha, x, incx, x, incx, a, lda, false);                 \
    }                                                                                              \
    cublasStatus_t cublas##S##her2(                                                                \
        cublasHandle_t handle, cublasFillMode_t uplo, int n, const T* alpha, const T* x, int incx, \
        const T* y, int incy, T* a, int lda) {                                                     \
        return syr<true>(handle, uplo, n, alpha, x, incx, y, incy, a, lda, true);                  \
    }                                                                                              \
    cublasStatus_t cublas##S##hemm(                                                                \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n,         \
        const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {  \
        return symm<true>(handle, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc);          \
    }                                                                                              \
    cublasStatus_t cublas##S##herk(                                                                \
        cublasHandle_t handle, cublasFillMode_t uplo, Op op, int n, int k, const R* alpha,         \
        const T* a, int lda, const R* beta, T* c, int ldc) {                                       \
        return syrk<true>(handle, uplo, op, n, k, alpha, a, lda, a, lda, beta, c, ldc, false);     \
    }                                                                                              \
    cublasStatus_t cublas##S##her2k(                                                               \
        cublasHandle_t handle, cublasFillMode_t uplo, Op op, int n, int k, const T* alpha,         \
        const T* a, int lda, const T* b, int ldb, const R* beta, T* c, int ldc) {                  \
        return syrk<true>(handle, uplo, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc, true);      \
    }

#define SIMULATOR_BLAS_MEASURES(amax, amin, asum, nrm2, T, R)                                      \
    cublasStatus_t amax(cublasHandle_t handle, int n, const T* x, int incx, int* result) {         \
        return measure(handle, x, n, result, [=] { return extreme(n, numbers(x), incx, true); });  \
    }                                                                                              \
    cublasStatus_t amin(cublasHandle_t handle, int n, const T* x, int incx, int* result) {         \
        return measure(handle, x, n, result, [=] { return extreme(n, numbers(x), incx, false); }); \
    }                                                                                              \
    cublasStatus_t asum(cublasHandle_t handle, int n, const T* x, int incx, R* result) {           \
        return measure(                                                                            \
            handle, x, n, result, [=] { return sum_of_magnitudes(n, numbers(x), incx); });         \
    }                                                                                              \
    cublasStatus_t nrm2(cublasHandle_t handle, int n, const T* x, int incx, R* result) {           \
        return measure(handle, x, n, result, [=] { return norm(n, numbers(x), incx); });           \
    }
#define SIMULATOR_BLAS_ROT(name, T, R, Sine)                                          \
    cublasStatus_t name(cublasHandle_t handle, int n, T* x, int incx, T* y, int incy, \
                        const R* cosine, const Sine* sine) {                          \
        return rot(handle, n, x, incx, y, incy, cosine, sine);                        \
    }
#define SIMULATOR_BLAS_ROTG(name, T, R)                                          \
    cublasStatus_t name(cublasHandle_t handle, T* a, T* b, R* cosine, T* sine) { \
        return rotg(handle, a, b, cosine, sine);                                 \
    }

SIMULATOR_BLAS(S, float)
SIMULATOR_BLAS(D, double)
SIMULATOR_BLAS(C, float2)
SIMULATOR_BLAS(Z, double2)
SIMULATOR_GEMM(H, __half)
SIMULATOR_BLAS_REAL(S, float)
SIMULATOR_BLAS_REAL(D, double)
SIMULATOR_BLAS_COMPLEX(C, float2, float)
SIMULATOR_BLAS_COMPLEX(Z, double2, double)
SIMULATOR_BLAS_MEASURES(cublasIsamax, cublasIsamin, cublasSasum, cublasSnrm2, float, float)
SIMULATOR_BLAS_MEASURES(cublasIdamax, cublasIdamin, cublasDasum, cublasDnrm2, double, double)
SIMULATOR_BLAS_MEASURES(cublasIcamax, cublasIcamin, cublasScasum, cublasScnrm2, float2, float)
SIMULATOR_BLAS_MEASURES(cublasIzamax, cublasIzamin, cublasDzasum, cublasDznrm2, double2, double)
SIMULATOR_BLAS_ROT(cublasSrot, float, float, float)
SIMULATOR_BLAS_ROT(cublasDrot, double, double, double)
SIMULATOR_BLAS_ROT(cublasCrot, float2, float, float2)
SIMULATOR_BLAS_ROT(cublasZrot, double2, double, double2)
SIMULATOR_BLAS_ROT(cublasCsrot, float2, float, float)
SIMULATOR_BLAS_ROT(cublasZdrot, double2, double, double)
SIMULATOR_BLAS_ROTG(cublasSrotg, float, float)
SIMULATOR_BLAS_ROTG(cublasDrotg, double, double)
SIMULATOR_BLAS_ROTG(cublasCrotg, float2, float)
SIMULATOR_BLAS_ROTG(cublasZrotg, double2, double)
cublasStatus_t cublasCsscal(cublasHandle_t handle, int n, const float* alpha, float2* x, int incx) {
    return scal(handle, n, alpha, x, incx);
}
cublasStatus_t cublasZdscal(cublasHandle_t handle, int n, const double* alpha, double2* x,
                            int incx) {
    return scal(handle, n, alpha, x, incx);
}

}  // namespace simulator::api
