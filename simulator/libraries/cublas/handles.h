// Who calls, how it wants to be answered, and what came of it.
#pragma once
#include <algorithm>
#include <complex>
#include <mutex>
#include <new>
#include <set>
#include "../../include/cublasLt.h"

// What a cublasHandle_t points to.
struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
    cublasAtomicsMode_t atomics = CUBLAS_ATOMICS_NOT_ALLOWED;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    int processors = 0;
};
struct cublasLtContext {};

namespace simulator::cublas {
namespace {

// PyTorch's routine said no; it has said why on stderr.
struct Failed {};

// The handles that were created and not destroyed: another pointer is none, whatever it points to.
class Handles {
  public:
    void add(const void* handle) {
        const std::lock_guard hold(mutex);
        known.insert(handle);
    }
    bool remove(const void* handle) {
        const std::lock_guard hold(mutex);
        return known.erase(handle);
    }
    bool holds(const void* handle) {
        const std::lock_guard hold(mutex);
        return known.count(handle);
    }

  private:
    std::mutex mutex;
    std::set<const void*> known;
};
Handles& handles() {
    static Handles* all = new Handles;  // for ever: handles are destroyed in destructors, too
    return *all;
}

// What is written in C++ here and in CUDA there.
template <class T>
struct Counterpart {
    using type = T;
};
template <>
struct Counterpart<float2> {
    using type = std::complex<float>;
};
template <>
struct Counterpart<double2> {
    using type = std::complex<double>;
};
template <class T>
using Number = typename Counterpart<T>::type;
template <class T>
const Number<T>* numbers(const T* data) {
    return reinterpret_cast<const Number<T>*>(data);
}
template <class T>
Number<T>* numbers(T* data) {
    return reinterpret_cast<Number<T>*>(data);
}

// A factor that the caller points to: read at once, or from the device when the work is done.
template <class T>
class Factor {
  public:
    Factor(const T* from, bool on_device) : at(on_device ? from : nullptr) {
        if (!on_device && from) value = *from;
    }
    T operator()() const { return at ? *at : value; }

  private:
    const T* at;
    T value{};
};

template <class Work>
cublasStatus_t attempt(const Work& work) {
    try {
        work();
        return CUBLAS_STATUS_SUCCESS;
    } catch (const std::bad_alloc&) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    } catch (const Failed&) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

// Work of a stream: done at once or, while the stream is captured, whenever the graph is launched.
template <class Work>
cublasStatus_t enqueue(cudaStream_t stream, const Work& work) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (stream && cudaStreamIsCapturing(stream, &status)) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (status == cudaStreamCaptureStatusNone) return attempt(work);
    const cudaHostFn_t run = [](void* kept) { attempt(*static_cast<const Work*>(kept)); };
    auto* kept = new (std::nothrow) Work(work);  // for ever: nobody tells of a graph's end
    if (!kept) return CUBLAS_STATUS_ALLOC_FAILED;
    return cudaLaunchHostFunc(stream, run, kept) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                 : CUBLAS_STATUS_SUCCESS;
}

template <class... Conditions>
constexpr bool are(const Conditions&... conditions) {
    return (... && bool(conditions));
}
bool is_operation(cublasOperation_t op) {
    return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}
bool is_side(cublasSideMode_t side) {
    return side == CUBLAS_SIDE_LEFT || side == CUBLAS_SIDE_RIGHT;
}
bool is_triangle(cublasFillMode_t uplo) {
    return uplo == CUBLAS_FILL_MODE_LOWER || uplo == CUBLAS_FILL_MODE_UPPER;
}
bool is_diagonal(cublasDiagType_t diag) {
    return diag == CUBLAS_DIAG_UNIT || diag == CUBLAS_DIAG_NON_UNIT;
}
// Whether a matrix of so many rows fits into columns that far apart.
bool fits(int64_t rows, int64_t ld) { return ld >= std::max<int64_t>(1, rows); }

}  // namespace
}  // namespace simulator::cublas

#define SIMULATOR_CUBLAS_HANDLE(handle) \
    if (!simulator::cublas::handles().holds(handle)) return CUBLAS_STATUS_NOT_INITIALIZED
#define SIMULATOR_CUBLAS_VALID(...) \
    if (!simulator::cublas::are(__VA_ARGS__)) return CUBLAS_STATUS_INVALID_VALUE
