// The functions of cuBLAS for handles and their settings, and for copies.
#pragma once
#include "handles.h"

using namespace simulator::cublas;

namespace simulator::api {

// ---- Handles and how they are set

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    SIMULATOR_CUBLAS_VALID(handle);
    return attempt([&] { handles().add(*handle = new cublasContext); });
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    if (!handles().remove(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
    SIMULATOR_CUBLAS_VALID(version);
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
    SIMULATOR_CUBLAS_VALID(value, type >= MAJOR_VERSION, type <= PATCH_LEVEL);
    *value = type == MAJOR_VERSION   ? CUBLAS_VER_MAJOR
             : type == MINOR_VERSION ? CUBLAS_VER_MINOR
                                     : CUBLAS_VER_PATCH;
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasGetCudartVersion() { return CUDART_VERSION; }

const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
#define SIMULATOR_NAME(name) \
    case name:               \
        return #name;
        SIMULATOR_NAME(CUBLAS_STATUS_SUCCESS)
        SIMULATOR_NAME(CUBLAS_STATUS_NOT_INITIALIZED)
        SIMULATOR_NAME(CUBLAS_STATUS_ALLOC_FAILED)
        SIMULATOR_NAME(CUBLAS_STATUS_INVALID_VALUE)
        SIMULATOR_NAME(CUBLAS_STATUS_ARCH_MISMATCH)
        SIMULATOR_NAME(CUBLAS_STATUS_MAPPING_ERROR)
        SIMULATOR_NAME(CUBLAS_STATUS_EXECUTION_FAILED)
        SIMULATOR_NAME(CUBLAS_STATUS_INTERNAL_ERROR)
        SIMULATOR_NAME(CUBLAS_STATUS_NOT_SUPPORTED)
        SIMULATOR_NAME(CUBLAS_STATUS_LICENSE_ERROR)
#undef SIMULATOR_NAME
    }
    return "CUBLAS_STATUS_UNKNOWN";
}
const char* cublasGetStatusString(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "success";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "the library was not initialized";
        case CUBLAS_STATUS_ALLOC_FAILED:
            return "the resource allocation failed";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "an invalid value was used";
        case CUBLAS_STATUS_ARCH_MISMATCH:
            return "an absent device architectural feature is needed";
        case CUBLAS_STATUS_MAPPING_ERROR:
            return "an access to GPU memory space failed";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "the function failed to run";
        case CUBLAS_STATUS_INTERNAL_ERROR:
            return "an internal operation failed";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "the functionality is not supported";
        case CUBLAS_STATUS_LICENSE_ERROR:
            return "the functionality requires a license";
    }
    return "unknown status";
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void*, size_t) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    return CUBLAS_STATUS_SUCCESS;
}

// cublasSetX and cublasGetX, of a field.
#define SIMULATOR_SETTING(X, T, field, is_valid)                   \
    cublasStatus_t cublasSet##X(cublasHandle_t handle, T value) {  \
        SIMULATOR_CUBLAS_HANDLE(handle);                           \
        SIMULATOR_CUBLAS_VALID(is_valid);                          \
        handle->field = value;                                     \
        return CUBLAS_STATUS_SUCCESS;                              \
    }                                                              \
    cublasStatus_t cublasGet##X(cublasHandle_t handle, T* value) { \
        SIMULATOR_CUBLAS_HANDLE(handle);                           \
        SIMULATOR_CUBLAS_VALID(value);                             \
        *value = handle->field;                                    \
        return CUBLAS_STATUS_SUCCESS;                              \
    }
SIMULATOR_SETTING(Stream, cudaStream_t, stream, true)
SIMULATOR_SETTING(PointerMode, cublasPointerMode_t, pointers,
                  value == CUBLAS_POINTER_MODE_HOST || value == CUBLAS_POINTER_MODE_DEVICE)
SIMULATOR_SETTING(AtomicsMode, cublasAtomicsMode_t, atomics,
                  value == CUBLAS_ATOMICS_NOT_ALLOWED || value == CUBLAS_ATOMICS_ALLOWED)
SIMULATOR_SETTING(MathMode, cublasMath_t, math, value >= 0 && value < 32)
SIMULATOR_SETTING(SmCountTarget, int, processors, value >= 0)
#undef SIMULATOR_SETTING

// ---- Copies, between memories that are one here

cublasStatus_t cublasSetVector(int n, int size, const void* x, int incx, void* y, int incy) {
    SIMULATOR_CUBLAS_VALID(size > 0, incx > 0, incy > 0, n >= 0, n == 0 || (x && y));
    for (int64_t i = 0; i < n; i++)
        __builtin_memmove(static_cast<char*>(y) + i * incy * size,
                          static_cast<const char*>(x) + i * incx * size, size);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMatrix(int rows, int cols, int size, const void* a, int lda, void* b,
                               int ldb) {
    SIMULATOR_CUBLAS_VALID(rows >= 0, cols >= 0, size > 0, fits(rows, lda), fits(rows, ldb),
                           rows == 0 || cols == 0 || (a && b));
    for (int64_t j = 0; j < cols; j++)
        __builtin_memmove(static_cast<char*>(b) + j * ldb * size,
                          static_cast<const char*>(a) + j * lda * size, int64_t(rows) * size);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVector(int n, int size, const void* x, int incx, void* y, int incy) {
    return cublasSetVector(n, size, x, incx, y, incy);
}
cublasStatus_t cublasGetMatrix(int rows, int cols, int size, const void* a, int lda, void* b,
                               int ldb) {
    return cublasSetMatrix(rows, cols, size, a, lda, b, ldb);
}
cublasStatus_t cublasSetVectorAsync(int n, int size, const void* x, int incx, void* y, int incy,
                                    cudaStream_t) {
    return cublasSetVector(n, size, x, incx, y, incy);
}
cublasStatus_t cublasGetVectorAsync(int n, int size, const void* x, int incx, void* y, int incy,
                                    cudaStream_t) {
    return cublasSetVector(n, size, x, incx, y, incy);
}
cublasStatus_t cublasSetMatrixAsync(int rows, int cols, int size, const void* a, int lda, void* b,
                                    int ldb, cudaStream_t) {
    return cublasSetMatrix(rows, cols, size, a, lda, b, ldb);
}
cublasStatus_t cublasGetMatrixAsync(int rows, int cols, int size, const void* a, int lda, void* b,
                                    int ldb, cudaStream_t) {
    return cublasSetMatrix(rows, cols, size, a, lda, b, ldb);
}

}  // namespace simulator::api
