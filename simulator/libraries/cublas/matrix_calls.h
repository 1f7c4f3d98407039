// What the functions of cuBLAS do with matrices: stored by halves, sums, diagonals, and LU.
#pragma once
#include "calls.h"

namespace simulator::cublas {
namespace {

// ---- Matrices of which a half is stored

template <bool hermitian, class T>
cublasStatus_t symm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m,
                    int n, const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta,
                    T* c, int ldc) {
    const int size = side == CUBLAS_SIDE_LEFT ? m : n;
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(is_side(side), is_triangle(uplo), m >= 0, n >= 0, fits(size, lda),
                           fits(m, ldb), fits(m, ldc));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, beta, a, b, c);
    using N = Number<T>;
    return enqueue(handle->stream, [=, times = factor(handle, alpha), kept = factor(handle, beta)] {
        Numbers<N> all = whole<hermitian, N>(uplo, size, {numbers(a), 1, lda});
        const Strided<const N> full{all, 1, size}, other{numbers(b), 1, ldb};
        const bool is_left = side == CUBLAS_SIDE_LEFT;
        multiply<N>(m, n, size, 1, times(), is_left ? full : other, is_left ? other : full, kept(),
                    {numbers(c), 1, ldc});
    });
}

// syrk with b == a; syrkx, and with `twice` syr2k.
template <bool hermitian, class T, class A, class B>
cublasStatus_t syrk(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t op, int n,
                    int k, const A* alpha, const T* a, int lda, const T* b, int ldb, const B* beta,
                    T* c, int ldc, bool twice) {
    const int rows = op == CUBLAS_OP_N ? n : k;
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(is_triangle(uplo), is_operation(op), n >= 0, k >= 0, fits(rows, lda),
                           fits(rows, ldb), fits(n, ldc));
    using N = Number<T>;
    if (is_complex<N> && op == (hermitian ? CUBLAS_OP_T : CUBLAS_OP_C))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, beta, c, k == 0 || (a && b));
    return enqueue(handle->stream, [=, times = factor(handle, alpha), kept = factor(handle, beta)] {
        update<hermitian, N>(uplo, op, n, k, N(times()), operand(op, numbers(a), lda),
                             operand(op, numbers(b), ldb), N(kept()), {numbers(c), 1, ldc}, twice);
    });
}

template <class T>
cublasStatus_t trmm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                    cublasOperation_t op, cublasDiagType_t diag, int m, int n, const T* alpha,
                    const T* a, int lda, const T* b, int ldb, T* c, int ldc) {
    const int size = side == CUBLAS_SIDE_LEFT ? m : n;
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(is_side(side), is_triangle(uplo), is_operation(op), is_diagonal(diag),
                           m >= 0, n >= 0, fits(size, lda), fits(m, ldb), fits(m, ldc));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, a, b, c);
    using N = Number<T>;
    return enqueue(handle->stream, [=, times = factor(handle, alpha)] {
        Numbers<N> all = triangle<N>(uplo, op, diag, size, {numbers(a), 1, lda});
        const Strided<const N> from{numbers(b), 1, ldb};
        Numbers<N> copy = matrix_of<N>(m, n, from);  // C may be B
        const Strided<const N> full{all, 1, size}, other{copy, 1, m};
        const bool is_left = side == CUBLAS_SIDE_LEFT;
        multiply<N>(m, n, size, 1, times(), is_left ? full : other, is_left ? other : full, N(0),
                    {numbers(c), 1, ldc});
    });
}

template <class T>
cublasStatus_t trsm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                    cublasOperation_t op, cublasDiagType_t diag, int m, int n, const T* alpha,
                    const T* const* a, int lda, T* const* b, int ldb, int batches) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(
        is_side(side), is_triangle(uplo), is_operation(op), is_diagonal(diag), m >= 0, n >= 0,
        batches >= 0, fits(m, ldb), fits(side == CUBLAS_SIDE_LEFT ? m : n, lda));
    if (m == 0 || n == 0 || batches == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, a, b);
    using N = Number<T>;
    return enqueue(handle->stream, [=, times = factor(handle, alpha)] {
        for (int i = 0; i < batches; i++)
            solve<N>(side, uplo, op, diag, m, n, times(), {numbers(a[i]), 1, lda},
                     {numbers(b[i]), 1, ldb});
    });
}

template <class T>
cublasStatus_t trsm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                    cublasOperation_t op, cublasDiagType_t diag, int m, int n, const T* alpha,
                    const T* a, int lda, T* b, int ldb) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(
        is_side(side), is_triangle(uplo), is_operation(op), is_diagonal(diag), m >= 0, n >= 0,
        fits(m, ldb), fits(side == CUBLAS_SIDE_LEFT ? m : n, lda));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, a, b);
    using N = Number<T>;
    return enqueue(handle->stream, [=, times = factor(handle, alpha)] {
        solve<N>(side, uplo, op, diag, m, n, times(), {numbers(a), 1, lda}, {numbers(b), 1, ldb});
    });
}

// x = op(A) x, and with `inverse` the x of op(A) x = x.
template <class T>
cublasStatus_t trmv(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t op,
                    cublasDiagType_t diag, int n, const T* a, int lda, T* x, int incx,
                    bool inverse) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(
        is_triangle(uplo), is_operation(op), is_diagonal(diag), n >= 0, fits(n, lda), incx);
    if (n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(a, x);
    using N = Number<T>;
    return enqueue(handle->stream, [=] {
        const Vector<N> vector(numbers(x), n, incx);
        const Strided<const N> matrix{numbers(a), 1, lda};
        Numbers<N> copy(n), result(n);
        for (int64_t i = 0; i < n; i++) copy[i] = vector[i];
        if (inverse) {
            solve<N>(CUBLAS_SIDE_LEFT, uplo, op, diag, n, 1, N(1), matrix, {copy, 1, n});
        } else {
            Numbers<N> all = triangle<N>(uplo, op, diag, n, matrix);
            multiply<N>(n, 1, n, 1, N(1), {all, 1, n}, {copy, 1, n}, N(0), {result, 1, n});
        }
        for (int64_t i = 0; i < n; i++) vector[i] = inverse ? copy[i] : result[i];
    });
}

// ---- Sums and diagonals

template <class T>
cublasStatus_t geam(cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int m,
                    int n, const T* alpha, const T* a, int lda, const T* beta, const T* b, int ldb,
                    T* c, int ldc) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(
        is_operation(opa), is_operation(opb), m >= 0, n >= 0, fits(opa == CUBLAS_OP_N ? m : n, lda),
        fits(opb == CUBLAS_OP_N ? m : n, ldb), fits(m, ldc));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(alpha, beta, c, a != c || (opa == CUBLAS_OP_N && lda == ldc),
                           b != c || (opb == CUBLAS_OP_N && ldb == ldc));
    using N = Number<T>;
    return enqueue(handle->stream, [=, times = factor(handle, alpha), more = factor(handle, beta)] {
        const Strided<const N> x = operand(opa, numbers(a), lda), y = operand(opb, numbers(b), ldb);
        const N p = times(), q = more();
        const auto part = [](N by, const Strided<const N>& it, cublasOperation_t op, int64_t i,
                             int64_t j) {
            if (by == N(0)) return N(0);  // it is not read
            return by * (op == CUBLAS_OP_C ? conjugate(it(i, j)) : it(i, j));
        };
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++)
                numbers(c)[j * ldc + i] = part(p, x, opa, i, j) + part(q, y, opb, i, j);
    });
}

template <class T>
cublasStatus_t dgmm(cublasHandle_t handle, cublasSideMode_t side, int m, int n, const T* a, int lda,
                    const T* x, int incx, T* c, int ldc) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(is_side(side), m >= 0, n >= 0, fits(m, lda), fits(m, ldc));
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(a, x, c);
    const bool is_left = side == CUBLAS_SIDE_LEFT;
    return enqueue(handle->stream, [=] {
        const Vector diagonal(numbers(x), is_left ? m : n, incx);
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++)
                numbers(c)[j * ldc + i] = numbers(a)[j * lda + i] * diagonal[is_left ? i : j];
    });
}

// ---- LU, of many small matrices

template <class T>
cublasStatus_t getrf(cublasHandle_t handle, int n, T* const a[], int lda, int* pivots, int* info,
                     int batches) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(n >= 0, batches >= 0, fits(n, lda));
    if (n == 0 || batches == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(a, info);
    using N = Number<T>;
    return enqueue(handle->stream, [=] {
        for (int64_t i = 0; i < batches; i++)
            info[i] = factorize<N>(n, {numbers(a[i]), 1, lda}, pivots ? pivots + i * n : nullptr);
    });
}

template <class T>
cublasStatus_t getrs(cublasHandle_t handle, cublasOperation_t op, int n, int columns,
                     const T* const a[], int lda, const int* pivots, T* const b[], int ldb,
                     int* info, int batches) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(info);  // on the host, as in LAPACK: which argument is wrong
    *info = !is_operation(op) ? -1
            : n < 0           ? -2
            : columns < 0     ? -3
            : !fits(n, lda)   ? -5
            : !fits(n, ldb)   ? -8
            : batches < 0     ? -10
                              : 0;
    if (*info) return CUBLAS_STATUS_INVALID_VALUE;
    if (n == 0 || columns == 0 || batches == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(a, b);
    using N = Number<T>;
    return enqueue(handle->stream, [=] {
        for (int64_t i = 0; i < batches; i++)
            solve_factorized<N>(op, n, columns, {numbers(a[i]), 1, lda},
                                pivots ? pivots + i * n : nullptr, {numbers(b[i]), 1, ldb});
    });
}

// Inverses, of factors (getri) or with `factors` of matrices (matinv).
template <class T>
cublasStatus_t getri(cublasHandle_t handle, int n, const T* const a[], int lda, const int* pivots,
                     T* const c[], int ldc, int* info, int batches, bool factors) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(n >= 0, batches >= 0, fits(n, lda), fits(n, ldc));
    if (n == 0 || batches == 0) return CUBLAS_STATUS_SUCCESS;
    SIMULATOR_CUBLAS_VALID(a, c, info);
    using N = Number<T>;
    return enqueue(handle->stream, [=] {
        for (int64_t i = 0; i < batches; i++) {
            const Strided<const N> from{numbers(a[i]), 1, lda};
            const Strided<N> to{numbers(c[i]), 1, ldc};
            Numbers<N> lu = matrix_of<N>(n, n, from);
            const std::unique_ptr<int[]> own(factors ? new int[n] : nullptr);
            const int* exchanged = factors ? own.get() : pivots ? pivots + i * n : nullptr;
            info[i] = 0;
            if (factors) info[i] = factorize<N>(n, {lu, 1, n}, own.get());
            for (int64_t p = n; p-- > 0;)
                if (lu[p * n + p] == N(0)) info[i] = int(p + 1);
            if (info[i]) continue;
            set_identity(n, to);
            solve_factorized<N>(CUBLAS_OP_N, n, n, {lu, 1, n}, exchanged, to);
        }
    });
}

}  // namespace
}  // namespace simulator::cublas
