// Functions of cuBLAS and cuBLASLt for Python to call. Factors lie on the device unless a function
// says otherwise, and each returns cuBLAS' status.
#include <cublasLt.h>
#include <cublas_v2.h>

namespace {

cublasHandle_t handle_with(cublasPointerMode_t mode) {
    static cublasHandle_t handle = nullptr;
    if (!handle) cublasCreate(&handle);
    cublasSetPointerMode(handle, mode);
    return handle;
}
cublasHandle_t handle() { return handle_with(CUBLAS_POINTER_MODE_DEVICE); }

// The matrices of a batch that lie one after another, by their addresses.
template <class T>
T** list_of(const void* first, long long matrix, int batches) {
    T** list;
    cudaMallocManaged(&list, (batches + 1) * sizeof(T*));
    for (int i = 0; i < batches; i++)
        list[i] = const_cast<T*>(static_cast<const T*>(first)) + i * matrix;
    return list;
}

template <class T>
__global__ void add_one(T* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += T(1);
}

}  // namespace

using Op = cublasOperation_t;
using Side = cublasSideMode_t;
using Fill = cublasFillMode_t;
using Diag = cublasDiagType_t;
using Type = cudaDataType_t;
#define IN(T) static_cast<const T*>
#define OUT(T) static_cast<T*>

#define GEMM(S, T)                                                                                \
    extern "C" int run_##S##gemm(                                                                 \
        int opa, int opb, int m, int n, int k, const void* alpha, const void* a, int lda,         \
        const void* b, int ldb, const void* beta, void* c, int ldc) {                             \
        return cublas##S##gemm(handle(), Op(opa), Op(opb), m, n, k, IN(T)(alpha), IN(T)(a), lda,  \
                               IN(T)(b), ldb, IN(T)(beta), OUT(T)(c), ldc);                       \
    }                                                                                             \
    extern "C" int run_##S##gemmStridedBatched(                                                   \
        int opa, int opb, int m, int n, int k, const void* alpha, const void* a, int lda,         \
        long long stridea, const void* b, int ldb, long long strideb, const void* beta, void* c,  \
        int ldc, long long stridec, int batches) {                                                \
        return cublas##S##gemmStridedBatched(                                                     \
            handle(), Op(opa), Op(opb), m, n, k, IN(T)(alpha), IN(T)(a), lda, stridea, IN(T)(b),  \
            ldb, strideb, IN(T)(beta), OUT(T)(c), ldc, stridec, batches);                         \
    }                                                                                             \
    extern "C" int run_##S##gemmBatched(                                                          \
        int opa, int opb, int m, int n, int k, const void* alpha, const void* a, int lda,         \
        long long stridea, const void* b, int ldb, long long strideb, const void* beta, void* c,  \
        int ldc, long long stridec, int batches) {                                                \
        T **as = list_of<T>(a, stridea, batches), **bs = list_of<T>(b, strideb, batches);         \
        T** cs = list_of<T>(c, stridec, batches);                                                 \
        const int status = cublas##S##gemmBatched(                                                \
            handle(), Op(opa), Op(opb), m, n, k, IN(T)(alpha), as, lda, bs, ldb, IN(T)(beta), cs, \
            ldc, batches);                                                                        \
        cudaDeviceSynchronize();                                                                  \
        cudaFree(as), cudaFree(bs), cudaFree(cs);                                                 \
        return status;                                                                            \
    }

#define BLAS(S, T)                                                                                 \
    GEMM(S, T)                                                                                     \
    extern "C" int run_##S##axpy(                                                                  \
        int n, const void* alpha, const void* x, int incx, void* y, int incy) {                    \
        return cublas##S##axpy(handle(), n, IN(T)(alpha), IN(T)(x), incx, OUT(T)(y), incy);        \
    }                                                                                              \
    extern "C" int run_##S##copy(int n, const void* x, int incx, void* y, int incy) {              \
        return cublas##S##copy(handle(), n, IN(T)(x), incx, OUT(T)(y), incy);                      \
    }                                                                                              \
    extern "C" int run_##S##swap(int n, void* x, int incx, void* y, int incy) {                    \
        return cublas##S##swap(handle(), n, OUT(T)(x), incx, OUT(T)(y), incy);                     \
    }                                                                                              \
    extern "C" int run_##S##scal(int n, const void* alpha, void* x, int incx) {                    \
        return cublas##S##scal(handle(), n, IN(T)(alpha), OUT(T)(x), incx);                        \
    }                                                                                              \
    extern "C" int run_##S##gemv(int op, int m, int n, const void* alpha, const void* a, int lda,  \
                                 const void* x, int incx, const void* beta, void* y, int incy) {   \
        return cublas##S##gemv(handle(), Op(op), m, n, IN(T)(alpha), IN(T)(a), lda, IN(T)(x),      \
                               incx, IN(T)(beta), OUT(T)(y), incy);                                \
    }                                                                                              \
    extern "C" int run_##S##symv(int fill, int n, const void* alpha, const void* a, int lda,       \
                                 const void* x, int incx, const void* beta, void* y, int incy) {   \
        return cublas##S##symv(handle(), Fill(fill), n, IN(T)(alpha), IN(T)(a), lda, IN(T)(x),     \
                               incx, IN(T)(beta), OUT(T)(y), incy);                                \
    }                                                                                              \
    extern "C" int run_##S##syr(                                                                   \
        int fill, int n, const void* alpha, const void* x, int incx, void* a, int lda) {           \
        return cublas##S##syr(                                                                     \
            handle(), Fill(fill), n, IN(T)(alpha), IN(T)(x), incx, OUT(T)(a), lda);                \
    }                                                                                              \
    extern "C" int run_##S##syr2(int fill, int n, const void* alpha, const void* x, int incx,      \
                                 const void* y, int incy, void* a, int lda) {                      \
        return cublas##S##syr2(handle(), Fill(fill), n, IN(T)(alpha), IN(T)(x), incx, IN(T)(y),    \
                               incy, OUT(T)(a), lda);                                              \
    }                                                                                              \
    extern "C" int run_##S##trmv(                                                                  \
        int fill, int op, int diag, int n, const void* a, int lda, void* x, int incx) {            \
        return cublas##S##trmv(                                                                    \
            handle(), Fill(fill), Op(op), Diag(diag), n, IN(T)(a), lda, OUT(T)(x), incx);          \
    }                                                                                              \
    extern "C" int run_##S##trsv(                                                                  \
        int fill, int op, int diag, int n, const void* a, int lda, void* x, int incx) {            \
        return cublas##S##trsv(                                                                    \
            handle(), Fill(fill), Op(op), Diag(diag), n, IN(T)(a), lda, OUT(T)(x), incx);          \
    }                                                                                              \
    extern "C" int run_##S##symm(                                                                  \
        int side, int fill, int m, int n, const void* alpha, const void* a, int lda,               \
        const void* b, int ldb, const void* beta, void* c, int ldc) {                              \
        return cublas##S##symm(handle(), Side(side), Fill(fill), m, n, IN(T)(alpha), IN(T)(a),     \
                               lda, IN(T)(b), ldb, IN(T)(beta), OUT(T)(c), ldc);                   \
    }                                                                                              \
    extern "C" int run_##S##syrk(int fill, int op, int n, int k, const void* alpha, const void* a, \
                                 int lda, const void* beta, void* c, int ldc) {                    \
        return cublas##S##syrk(handle(), Fill(fill), Op(op), n, k, IN(T)(alpha), IN(T)(a), lda,    \
                               IN(T)(beta), OUT(T)(c), ldc);                                       \
    }                                                                                              \
    extern "C" int run_##S##syr2k(                                                                 \
        int fill, int op, int n, int k, const void* alpha, const void* a, int lda, const void* b,  \
        int ldb, const void* beta, void* c, int ldc) {                                             \
        return cublas##S##syr2k(handle(), Fill(fill), Op(op), n, k, IN(T)(alpha), IN(T)(a), lda,   \
                                IN(T)(b), ldb, IN(T)(beta), OUT(T)(c), ldc);                       \
    }                                                                                              \
    extern "C" int run_##S##trmm(                                                                  \
        int side, int fill, int op, int diag, int m, int n, const void* alpha, const void* a,      \
        int lda, const void* b, int ldb, void* c, int ldc) {                                       \
        return cublas##S##trmm(handle(), Side(side), Fill(fill), Op(op), Diag(diag), m, n,         \
                               IN(T)(alpha), IN(T)(a), lda, IN(T)(b), ldb, OUT(T)(c), ldc);        \
    }                                                                                              \
    extern "C" int run_##S##trsm(int side, int fill, int op, int diag, int m, int n,               \
                                 const void* alpha, const void* a, int lda, void* b, int ldb) {    \
        return cublas##S##trsm(handle(), Side(side), Fill(fill), Op(op), Diag(diag), m, n,         \
                               IN(T)(alpha), IN(T)(a), lda, OUT(T)(b), ldb);                       \
    }                                                                                              \
    extern "C" int run_##S##geam(                                                                  \
        int opa, int opb, int m, int n, const void* alpha, const void* a, int lda,                 \
        const void* beta, const void* b, int ldb, void* c, int ldc) {                              \
        return cublas##S##geam(handle(), Op(opa), Op(opb), m, n, IN(T)(alpha), IN(T)(a), lda,      \
                               IN(T)(beta), IN(T)(b), ldb, OUT(T)(c), ldc);                        \
    }                                                                                              \
    extern "C" int run_##S##dgmm(int side, int m, int n, const void* a, int lda, const void* x,    \
                                 int incx, void* c, int ldc) {                                     \
        return cublas##S##dgmm(                                                                    \
            handle(), Side(side), m, n, IN(T)(a), lda, IN(T)(x), incx, OUT(T)(c), ldc);            \
    }                                                                                              \
    /* a becomes its factors, b the solution of a x = b, c the inverse. */                         \
    extern "C" int run_##S##lu(int op, int n, int columns, void* a, void* b, void* c, int* pivots, \
                               int* info, int batches) {                                           \
        T **as = list_of<T>(a, n * n, batches), **bs = list_of<T>(b, n * columns, batches);        \
        T** cs = list_of<T>(c, n * n, batches);                                                    \
        int wrong = 0,                                                                             \
            status = cublas##S##getrfBatched(handle(), n, as, n, pivots, info, batches);           \
        status |= cublas##S##getrsBatched(                                                         \
            handle(), Op(op), n, columns, as, n, pivots, bs, n, &wrong, batches);                  \
        status |= cublas##S##getriBatched(handle(), n, as, n, pivots, cs, n, info, batches);       \
        cudaDeviceSynchronize();                                                                   \
        cudaFree(as), cudaFree(bs), cudaFree(cs);                                                  \
        return status | wrong;                                                                     \
    }

BLAS(S, float)
BLAS(D, double)
BLAS(C, float2)
BLAS(Z, double2)
GEMM(H, __half)

#define REAL(S, T)                                                                                 \
    extern "C" int run_##S##dot(int n, const T* x, int incx, const T* y, int incy, T* result) {    \
        return cublas##S##dot(handle(), n, x, incx, y, incy, result);                              \
    }                                                                                              \
    extern "C" int run_##S##ger(                                                                   \
        int m, int n, const T* alpha, const T* x, int incx, const T* y, int incy, T* a, int lda) { \
        return cublas##S##ger(handle(), m, n, alpha, x, incx, y, incy, a, lda);                    \
    }                                                                                              \
    extern "C" int run_##S##rot(int n, T* x, int incx, T* y, int incy, const T* c, const T* s) {   \
        return cublas##S##rot(handle(), n, x, incx, y, incy, c, s);                                \
    }                                                                                              \
    extern "C" int run_##S##rotg(T* a, T* b, T* c, T* s) {                                         \
        return cublas##S##rotg(handle(), a, b, c, s);                                              \
    }
REAL(S, float)
REAL(D, double)

#define COMPLEX(S, T, R)                                                                          \
    extern "C" int run_##S##dotc(                                                                 \
        int n, const void* x, int incx, const void* y, int incy, void* result) {                  \
        return cublas##S##dotc(handle(), n, IN(T)(x), incx, IN(T)(y), incy, OUT(T)(result));      \
    }                                                                                             \
    extern "C" int run_##S##dotu(                                                                 \
        int n, const void* x, int incx, const void* y, int incy, void* result) {                  \
        return cublas##S##dotu(handle(), n, IN(T)(x), incx, IN(T)(y), incy, OUT(T)(result));      \
    }                                                                                             \
    extern "C" int run_##S##gerc(int m, int n, const void* alpha, const void* x, int incx,        \
                                 const void* y, int incy, void* a, int lda) {                     \
        return cublas##S##gerc(                                                                   \
            handle(), m, n, IN(T)(alpha), IN(T)(x), incx, IN(T)(y), incy, OUT(T)(a), lda);        \
    }                                                                                             \
    extern "C" int run_##S##hemm(                                                                 \
        int side, int fill, int m, int n, const void* alpha, const void* a, int lda,              \
        const void* b, int ldb, const void* beta, void* c, int ldc) {                             \
        return cublas##S##hemm(handle(), Side(side), Fill(fill), m, n, IN(T)(alpha), IN(T)(a),    \
                               lda, IN(T)(b), ldb, IN(T)(beta), OUT(T)(c), ldc);                  \
    }                                                                                             \
    extern "C" int run_##S##herk(int fill, int op, int n, int k, const R* alpha, const void* a,   \
                                 int lda, const R* beta, void* c, int ldc) {                      \
        return cublas##S##herk(                                                                   \
            handle(), Fill(fill), Op(op), n, k, alpha, IN(T)(a), lda, beta, OUT(T)(c), ldc);      \
    }                                                                                             \
    extern "C" int run_##S##her2k(                                                                \
        int fill, int op, int n, int k, const void* alpha, const void* a, int lda, const void* b, \
        int ldb, const R* beta, void* c, int ldc) {                                               \
        return cublas##S##her2k(handle(), Fill(fill), Op(op), n, k, IN(T)(alpha), IN(T)(a), lda,  \
                                IN(T)(b), ldb, beta, OUT(T)(c), ldc);                             \
    }
COMPLEX(C, float2, float)
COMPLEX(Z, double2, double)

#define MEASURES(S, T, R, amax, amin, asum, nrm2)                                            \
    extern "C" int run_##S##measures(int n, const void* x, int incx, int* places, R* sums) { \
        return cublas##amax(handle(), n, IN(T)(x), incx, places) |                           \
               cublas##amin(handle(), n, IN(T)(x), incx, places + 1) |                       \
               cublas##asum(handle(), n, IN(T)(x), incx, sums) |                             \
               cublas##nrm2(handle(), n, IN(T)(x), incx, sums + 1);                          \
    }
MEASURES(S, float, float, Isamax, Isamin, Sasum, Snrm2)
MEASURES(D, double, double, Idamax, Idamin, Dasum, Dnrm2)
MEASURES(C, float2, float, Icamax, Icamin, Scasum, Scnrm2)
MEASURES(Z, double2, double, Izamax, Izamin, Dzasum, Dznrm2)

extern "C" int run_GemmEx(int opa, int opb, int m, int n, int k, const void* alpha, const void* a,
                          int atype, int lda, long long stridea, const void* b, int btype, int ldb,
                          long long strideb, const void* beta, void* c, int ctype, int ldc,
                          long long stridec, int batches, int compute) {
    return cublasGemmStridedBatchedEx(
        handle(), Op(opa), Op(opb), m, n, k, alpha, a, Type(atype), lda, stridea, b, Type(btype),
        ldb, strideb, beta, c, Type(ctype), ldc, stridec, batches, cublasComputeType_t(compute),
        CUBLAS_GEMM_DEFAULT);
}

// Factors on the host; and the older names of what is computed in.
extern "C" int run_on_host(int m, int n, int k, float alpha, const float* a, const float* b,
                           float beta, float* c, float* dot) {
    const cublasHandle_t handle = handle_with(CUBLAS_POINTER_MODE_HOST);
    float result = -1;
    int status = cublasGemmEx(
        handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, a, CUDA_R_32F, m, b, CUDA_R_32F, k,
        &beta, c, CUDA_R_32F, m, CUDA_R_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    status |= cublasSdot(handle, k, a, 1, b, 1, &result);
    cudaMemcpy(dot, &result, sizeof result, cudaMemcpyHostToDevice);
    return status;
}

// A kernel before a product, and one after it.
extern "C" int run_between_kernels(float* a, const float* b, float* c, int n) {
    add_one<<<(n * n + 63) / 64, 64>>>(a, n * n);
    const float one = 1, zero = 0;
    const int status = cublasSgemm(handle_with(CUBLAS_POINTER_MODE_HOST), CUBLAS_OP_N, CUBLAS_OP_N,
                                   n, n, n, &one, a, n, b, n, &zero, c, n);
    add_one<<<(n * n + 63) / 64, 64>>>(c, n * n);
    return status;
}

// In a graph that is launched twice: c += 2 a, the factor being read when it is captured.
extern "C" int run_captured(const float* a, float* c, int n) {
    cublasHandle_t handle;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    if (cublasCreate(&handle) || cudaStreamCreate(&stream)) return 1;
    if (cublasSetStream(handle, stream)) return 2;
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)) return 3;
    float factor = 2;
    if (cublasSaxpy(handle, n, &factor, a, 1, c, 1)) return 4;
    factor = 100;
    if (cudaStreamEndCapture(stream, &graph)) return 5;
    if (cudaGraphInstantiate(&executable, graph, 0)) return 6;
    for (int i = 0; i < 2; i++)
        if (cudaGraphLaunch(executable, stream)) return 7;
    if (cudaStreamSynchronize(stream)) return 8;
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cublasDestroy(handle);
    cudaStreamDestroy(stream);
    return 0;
}

// What a handle is and is not, and how it is set: the number of the first thing that is wrong.
extern "C" int run_handles(float* x) {
    const float one = 1;
    cublasHandle_t handle = nullptr;
    if (cublasSaxpy(nullptr, 1, &one, x, 1, x, 1) != CUBLAS_STATUS_NOT_INITIALIZED) return 1;
    if (cublasCreate(nullptr) != CUBLAS_STATUS_INVALID_VALUE) return 2;
    if (cublasCreate(&handle)) return 3;
    cublasPointerMode_t mode;
    if (cublasGetPointerMode(handle, &mode) || mode != CUBLAS_POINTER_MODE_HOST) return 4;
    cudaStream_t stream, same;
    cudaStreamCreate(&stream);
    if (cublasSetStream(handle, stream) || cublasGetStream(handle, &same) || same != stream)
        return 5;
    cublasMath_t math = CUBLAS_PEDANTIC_MATH;
    if (cublasGetMathMode(handle, &math) || math != CUBLAS_DEFAULT_MATH) return 6;
    if (cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH)) return 7;
    cublasAtomicsMode_t atomics;
    if (cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_ALLOWED)) return 8;
    if (cublasGetAtomicsMode(handle, &atomics) || atomics != CUBLAS_ATOMICS_ALLOWED) return 9;
    int version = 0;
    if (cublasGetVersion(handle, &version) || version < 11000) return 10;
    if (cublasSetWorkspace(handle, nullptr, 0)) return 11;
    if (cublasDestroy(handle)) return 12;
    cudaStreamDestroy(stream);
    return 0;
}
// Only here is a handle used that was destroyed, which NVIDIA's library does not look for.
extern "C" int run_destroyed_handle() {
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasDestroy(handle);
    return cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH);
}
extern "C" int run_name_is(int status, const signed char* name) {
    const char* own = cublasGetStatusName(cublasStatus_t(status));
    int i = 0;
    while (own[i] && own[i] == name[i]) i++;
    return own[i] == name[i] && *cublasGetStatusString(cublasStatus_t(status));
}

extern "C" int run_matrix_copies(const float* from, int rows, int columns, int lda, float* to,
                                 int ldb) {
    return cublasSetMatrix(rows, columns, sizeof *from, from, lda, to, ldb) |
           cublasGetVector(rows, sizeof *from, from, lda, to + ldb * columns, 2);
}

// ---- cuBLASLt

namespace {

struct Layout {
    cublasLtMatrixLayout_t it;
    Layout(int type, int order, uint64_t rows, uint64_t columns, int64_t ld, int batches,
           int64_t matrix) {
        cublasLtMatrixLayoutCreate(&it, Type(type), rows, columns, ld);
        set(CUBLASLT_MATRIX_LAYOUT_ORDER, order);
        set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches);
        set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix);
    }
    ~Layout() { cublasLtMatrixLayoutDestroy(it); }
    template <class T>
    void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
        cublasLtMatrixLayoutSetAttribute(it, attribute, &value, sizeof value);
    }
};

cublasLtHandle_t light() {
    static cublasLtHandle_t handle = nullptr;
    if (!handle) cublasLtCreate(&handle);
    return handle;
}

}  // namespace

// D [m, n] of contiguous matrices, all in one order. `scales`: of A, B and D, where these have 8
// bits; then `largest` is D's.
extern "C" int run_matmul(int m, int n, int k, int batches, int order, int opa, int opb,
                          const void* alpha, const void* a, int atype, const void* b, int btype,
                          const void* beta, const void* c, int ctype, void* d, int dtype,
                          int compute, int scale, int pointer_mode, int epilogue, const void* bias,
                          int bias_type, const void* aux, int aux_type, long long aux_ld,
                          const void* scales, float* largest) {
    cublasLtMatmulDesc_t desc;
    if (cublasLtMatmulDescCreate(&desc, cublasComputeType_t(compute), Type(scale))) return -1;
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
        if (cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value)) exit(1);
    };
    const bool with_bias = epilogue & (4 | 16 | 256 | 512), with_aux = epilogue & 128;
    set(CUBLASLT_MATMUL_DESC_TRANSA, opa);
    set(CUBLASLT_MATMUL_DESC_TRANSB, opb);
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, pointer_mode);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    const bool plain_a = opa == CUBLAS_OP_N, plain_b = opb == CUBLAS_OP_N;
    if (with_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (with_bias) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, int64_t(batches > 1 ? m : 0));
    if (with_bias && bias_type >= 0) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type);
    if (with_aux) {
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(aux_ld));
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, int64_t(aux_ld * n));
        if (aux_type >= 0) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, aux_type);
    }
    if (scales) {
        const float* factors = static_cast<const float*>(scales);
        if (atype == CUDA_R_8F_E4M3 || atype == CUDA_R_8F_E5M2) {
            set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, factors);
            set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, factors + 1);
        }
        if (dtype == CUDA_R_8F_E4M3 || dtype == CUDA_R_8F_E5M2) {
            set(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, factors + 2);
            set(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, largest);
        }
    }
    const auto layout = [&](int type, int rows, int columns) {
        return Layout(type, order, rows, columns, order == CUBLASLT_ORDER_ROW ? columns : rows,
                      batches, int64_t(rows) * columns);
    };
    const Layout la = layout(atype, plain_a ? m : k, plain_a ? k : m);
    const Layout lb = layout(btype, plain_b ? k : n, plain_b ? n : k);
    const Layout lc = layout(ctype, m, n), ld = layout(dtype, m, n);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    const size_t most = 1 << 25;
    cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    int status = cublasLtMatmulAlgoGetHeuristic(
        light(), desc, la.it, lb.it, lc.it, ld.it, preference, 1, &found, &count);
    if (!status && (count != 1 || found.state)) status = -2;
    void* workspace = nullptr;
    if (!status && found.workspaceSize) cudaMalloc(&workspace, found.workspaceSize);
    if (!status)
        status = cublasLtMatmul(light(), desc, alpha, a, la.it, b, lb.it, beta, c, lc.it, d, ld.it,
                                &found.algo, workspace, found.workspaceSize, 0);
    cudaDeviceSynchronize();
    cudaFree(workspace);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(desc);
    return status;
}

// C [rows, columns] by rows = A^T, which is by columns, + 2 B.
extern "C" int run_transform(const float* a, const float* b, float* c, int rows, int columns) {
    cublasLtMatrixTransformDesc_t desc;
    cublasLtMatrixTransformDescCreate(&desc, CUDA_R_32F);
    const cublasOperation_t op = CUBLAS_OP_T;
    cublasLtMatrixTransformDescSetAttribute(
        desc, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, &op, sizeof op);
    const Layout la(CUDA_R_32F, CUBLASLT_ORDER_COL, columns, rows, columns, 1, 0);
    const Layout lc(CUDA_R_32F, CUBLASLT_ORDER_ROW, rows, columns, columns, 1, 0);
    const float one = 1, two = 2;
    const int status =
        cublasLtMatrixTransform(light(), desc, &one, a, la.it, &two, b, lc.it, c, lc.it, 0);
    cublasLtMatrixTransformDescDestroy(desc);
    return status;
}

// Descriptions and what is refused of them: the number of the first thing that is wrong.
extern "C" int run_descriptions() {
    cublasLtMatmulDesc_t desc;
    if (cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)) return 1;
    int32_t op = CUBLAS_OP_T;
    if (cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op, 1) !=
        CUBLAS_STATUS_INVALID_VALUE)
        return 2;
    if (cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op)) return 3;
    int32_t read = -1;
    size_t written = 0;
    if (cublasLtMatmulDescGetAttribute(
            desc, CUBLASLT_MATMUL_DESC_TRANSA, &read, sizeof read, &written) ||
        read != CUBLAS_OP_T || written != sizeof read)
        return 4;
    if (cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 4) !=
        CUBLAS_STATUS_INVALID_VALUE)
        return 5;
    cublasLtMatrixLayout_t layout;
    if (cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 4, 3, 4)) return 6;
    uint64_t rows = 0;
    if (cublasLtMatrixLayoutGetAttribute(
            layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows, &written) ||
        rows != 4)
        return 7;
    const float one = 1;
    float x[12];
    // op(A) is [3, 4]: these shapes do not fit each other.
    if (cublasLtMatmul(light(), desc, &one, x, layout, x, layout, &one, x, layout, x, layout,
                       nullptr, nullptr, 0, 0) != CUBLAS_STATUS_INVALID_VALUE)
        return 8;
    if (cublasLtMatmul(nullptr, desc, &one, x, layout, x, layout, &one, x, layout, x, layout,
                       nullptr, nullptr, 0, 0) == CUBLAS_STATUS_SUCCESS)
        return 9;
    if (cublasLtMatrixLayoutDestroy(layout) || cublasLtMatmulDescDestroy(desc)) return 10;
    return 0;
}
