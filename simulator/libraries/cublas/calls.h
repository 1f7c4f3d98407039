// What cuBLAS is asked for, type by type: the arguments are checked as cuBLAS checks them, and the
// work is enqueued.
#pragma once
#include "products.h"
#include "triangles.h"

namespace simulator::cublas {
namespace {

bool is_on_device(cublasHandle_t handle) { return handle->pointers == CUBLAS_POINTER_MODE_DEVICE; }

// alpha or beta of a call. `handle` is known to be one.
template <class T>
Factor<Number<T>> factor(cublasHandle_t handle, const T* from) {
    return {numbers(from), is_on_device(handle)};
}

// ---- Products

struct Given {
    const void* data;
    cudaDataType_t type;
    int64_t ld;
    int64_t matrix = 0;
    const void* const* list = nullptr;

    bool is_missing() const { return !data && !list; }
    Matrix matrix_of(cublasOperation_t op) const {
        const Matrix it{
            data, type, 1, ld, matrix, list, op == CUBLAS_OP_C && is_complex_type(type)};
        return op == CUBLAS_OP_N ? it : it.transposed();
    }
};

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int64_t m,
                    int64_t n, int64_t k, const void* alpha, Given a, Given b, const void* beta,
                    Given c, int64_t batches, cublasComputeType_t compute) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(is_operation(opa), is_operation(opb), m >= 0, n >= 0, k >= 0,
                           batches >= 0, fits(opa == CUBLAS_OP_N ? m : k, a.ld),
                           fits(opb == CUBLAS_OP_N ? k : n, b.ld), fits(m, c.ld));
    const cudaDataType_t scale = scale_of(compute, is_complex_type(a.type));
    if (scale == cudaDataType_t(-1)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_supported(compute, scale, a.type, b.type, c.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (m == 0 || n == 0 || batches == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(
        alpha, beta, !c.is_missing(), k == 0 || !a.is_missing(), k == 0 || !b.is_missing());
    const AnyFactor times(scale, alpha, is_on_device(handle)),
        kept(scale, beta, is_on_device(handle));
    return enqueue(handle->stream, [=] {
        with_numbers(a.type, scale, [&](auto number) {
            using T = decltype(number);
            const Matrix result = c.matrix_of(CUBLAS_OP_N);
            Product<T>{
                m,
                n,
                k,
                batches,
                times.as<T>(),
                a.matrix_of(opa),
                b.matrix_of(opb),
                kept.as<T>(),
                result,
                result}
                .run();
        });
    });
}

template <class T>
constexpr cublasComputeType_t compute_of = CUBLAS_COMPUTE_32F;
template <>
constexpr cublasComputeType_t compute_of<double> = CUBLAS_COMPUTE_64F;
template <>
constexpr cublasComputeType_t compute_of<double2> = CUBLAS_COMPUTE_64F;
template <>
constexpr cublasComputeType_t compute_of<__half> = CUBLAS_COMPUTE_16F;

template <class T>
Given given(const T* data, int64_t ld, int64_t matrix = 0) {
    return {data, type_of<Number<T>>, ld, matrix};
}
template <class T>
Given given(const T* const* list, int64_t ld) {
    return {nullptr, type_of<Number<T>>, ld, 0, reinterpret_cast<const void* const*>(list)};
}

// ---- Vectors

template <class T, class Result, class Value>
cublasStatus_t measure(cublasHandle_t handle, const T* x, int n, Result* result, Value value) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(result, x || n <= 0);
    return enqueue(handle->stream, [=] { *result = Result(value()); });
}

template <bool conjugated, class T>
cublasStatus_t dot(cublasHandle_t handle, int n, const T* x, int incx, const T* y, int incy,
                   T* result) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(result, n <= 0 || (x && y));
    using N = Number<T>;
    return enqueue(handle->stream, [=] {
        *numbers(result) =
            n <= 0 ? N(0) : dot<conjugated, N>(n, {numbers(x), n, incx}, {numbers(y), n, incy});
    });
}

// work(x, y) for vectors that have elements.
template <class T, class U, class Work>
cublasStatus_t on_vectors(cublasHandle_t handle, int n, T* x, int incx, U* y, int incy, Work work) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(x, y);
    auto* const from = numbers(x);
    auto* const to = numbers(y);
    return enqueue(handle->stream, [=] { work(Vector(from, n, incx), Vector(to, n, incy)); });
}

template <class T>
cublasStatus_t axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int incx, T* y,
                    int incy) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(alpha);
    return on_vectors(
        handle, n, x, incx, y, incy, [n, times = factor(handle, alpha)](auto from, auto to) {
            const auto by = times();
            for (int64_t i = 0; i < n; i++) to[i] += by * from[i];
        });
}

template <class T, class R>
cublasStatus_t scal(cublasHandle_t handle, int n, const R* alpha, T* x, int incx) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(alpha);
    if (n <= 0 || incx <= 0) return CUBLAS_STATUS_SUCCESS;
    return on_vectors(
        handle, n, x, incx, x, incx, [n, times = factor(handle, alpha)](auto from, auto to) {
            const auto by = times();
            for (int64_t i = 0; i < n; i++) to[i] = by * from[i];
        });
}

template <class T, class R, class Sine>
cublasStatus_t rot(cublasHandle_t handle, int n, T* x, int incx, T* y, int incy, const R* cosine,
                   const Sine* sine) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(cosine, sine);
    return on_vectors(handle, n, x, incx, y, incy,
                      [n, c = factor(handle, cosine), s = factor(handle, sine)](auto a, auto b) {
                          rotate(n, a, b, c(), s());
                      });
}

template <class T, class R>
cublasStatus_t rotg(cublasHandle_t handle, T* a, T* b, R* cosine, T* sine) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(a, b, cosine, sine);
    return enqueue(
        handle->stream, [=] { make_rotation(*numbers(a), *numbers(b), *cosine, *numbers(sine)); });
}

// ---- Matrices and vectors

template <class T>
cublasStatus_t gemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const T* alpha,
                    const T* a, int lda, const T* x, int incx, const T* beta, T* y, int incy) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(is_operation(op), m >= 0, n >= 0, fits(m, lda), incx, incy);
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, beta, a, x, y);
    using N = Number<T>;
    const int64_t rows = op == CUBLAS_OP_N ? m : n, columns = op == CUBLAS_OP_N ? n : m;
    return enqueue(handle->stream, [=, times = factor(handle, alpha), kept = factor(handle, beta)] {
        multiply_vector<N>(rows, columns, times(), operand(op, numbers(a), lda), op == CUBLAS_OP_C,
                           {numbers(x), columns, incx}, kept(), {numbers(y), rows, incy});
    });
}

template <bool hermitian, class T>
cublasStatus_t symv(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T* alpha, const T* a,
                    int lda, const T* x, int incx, const T* beta, T* y, int incy) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(is_triangle(uplo), n >= 0, fits(n, lda), incx, incy);
    if (n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, beta, a, x, y);
    using N = Number<T>;
    return enqueue(handle->stream, [=, times = factor(handle, alpha), kept = factor(handle, beta)] {
        Numbers<N> all = whole<hermitian, N>(uplo, n, {numbers(a), 1, lda});
        multiply_vector<N>(n, n, times(), {all, 1, n}, false, {numbers(x), n, incx}, kept(),
                           {numbers(y), n, incy});
    });
}

template <bool conjugated, class T>
cublasStatus_t ger(cublasHandle_t handle, int m, int n, const T* alpha, const T* x, int incx,
                   const T* y, int incy, T* a, int lda) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(m >= 0, n >= 0, fits(m, lda), incx, incy);
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, a, x, y);
    using N = Number<T>;
    return enqueue(handle->stream, [=, times = factor(handle, alpha)] {
        const auto all = [m](int64_t) { return std::pair<int64_t, int64_t>(0, m); };
        add_outer<N>(n, times(), {numbers(x), m, incx}, {numbers(y), n, incy}, conjugated,
                     {numbers(a), 1, lda}, all);
    });
}

// A += alpha x y^T in a triangle, and with `twice` its transpose besides.
template <bool hermitian, class T, class R>
cublasStatus_t syr(cublasHandle_t handle, cublasFillMode_t uplo, int n, const R* alpha, const T* x,
                   int incx, const T* y, int incy, T* a, int lda, bool twice) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(is_triangle(uplo), n >= 0, fits(n, lda), incx, incy);
    if (n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, a, x, y);
    using N = Number<T>;
    return enqueue(handle->stream, [=, times = factor(handle, alpha)] {
        const auto rows = [=](int64_t j) { return rows_in(uplo, n, j); };
        const N by = N(times());
        const Vector<const N> from(numbers(x), n, incx), to(numbers(y), n, incy);
        const Strided<N> matrix{numbers(a), 1, lda};
        add_outer<N>(n, by, from, to, hermitian, matrix, rows);
        if (twice)
            add_outer<N>(n, hermitian ? conjugate(by) : by, to, from, hermitian, matrix, rows);
        if (hermitian)
            for (int64_t i = 0; i < n; i++) matrix(i, i) = N(real_part(matrix(i, i)));
    });
}

}  // namespace
}  // namespace simulator::cublas
