// Matrices of which a half is stored: symmetric, Hermitian and triangular ones, and LU.
#pragma once
#include "vectors.h"

namespace simulator::cublas {
namespace {

bool is_in(cublasFillMode_t uplo, int64_t i, int64_t j) {
    return uplo == CUBLAS_FILL_MODE_LOWER ? i >= j : i <= j;
}
std::pair<int64_t, int64_t> rows_in(cublasFillMode_t uplo, int64_t n, int64_t j) {
    using Range = std::pair<int64_t, int64_t>;
    return uplo == CUBLAS_FILL_MODE_LOWER ? Range(j, n) : Range(0, j + 1);
}

// All of a symmetric or Hermitian matrix.
template <bool hermitian, class T>
Numbers<T> whole(cublasFillMode_t uplo, int64_t n, Strided<const T> a) {
    return matrix_of<T>(n, n, [&](int64_t i, int64_t j) {
        if (hermitian && i == j) return T(real_part(a(i, i)));
        if (is_in(uplo, i, j)) return a(i, j);
        return hermitian ? conjugate(a(j, i)) : a(j, i);
    });
}

// op(A) of a triangular matrix, with its zeros and ones.
template <class T>
Numbers<T> triangle(cublasFillMode_t uplo, cublasOperation_t op, cublasDiagType_t diag, int64_t n,
                    Strided<const T> a) {
    return matrix_of<T>(n, n, [&](int64_t i, int64_t j) {
        if (op != CUBLAS_OP_N) std::swap(i, j);
        if (i == j && diag == CUBLAS_DIAG_UNIT) return T(1);
        if (!is_in(uplo, i, j)) return T(0);
        return op == CUBLAS_OP_C ? conjugate(a(i, j)) : a(i, j);
    });
}

// C = alpha op(A) op(B)^T + beta C in a triangle of C [n, n], and with `twice` the transpose of the
// product besides: of op(A), op(B) [n, k]. Hermitian: conjugate transposes, and a real diagonal.
template <bool hermitian, class T>
void update(cublasFillMode_t uplo, cublasOperation_t op, int64_t n, int64_t k, T alpha,
            Strided<const T> a, Strided<const T> b, T beta, Strided<T> c, bool twice) {
    Numbers<T> product(n * n);
    std::unique_ptr<Numbers<T>> left, right;
    if (alpha != T(0) && k > 0) {
        const bool first = op != CUBLAS_OP_N;  // which of the two is conjugated
        const auto conjugated = [&](Strided<const T> it, std::unique_ptr<Numbers<T>>& kept) {
            if constexpr (!hermitian) return it;
            kept = std::make_unique<Numbers<T>>(
                matrix_of<T>(n, k, [&](int64_t i, int64_t p) { return conjugate(it(i, p)); }));
            return Strided<const T>{*kept, 1, n};
        };
        const Strided<const T> x = first ? conjugated(a, left) : a;
        const Strided<const T> y = first ? b : conjugated(b, right);
        torch_product<T>(n, n, k, 1, T(1), x, y.transposed(), T(0), {product, 1, n});
    } else {
        std::fill_n(static_cast<T*>(product), n * n, T(0));
    }
    for (int64_t j = 0; j < n; j++) {
        const auto [begin, end] = rows_in(uplo, n, j);
        for (int64_t i = begin; i < end; i++) {
            T value = alpha * product[j * n + i];
            if (twice) {
                const T other = alpha * product[i * n + j];
                value += hermitian ? conjugate(other) : other;
            }
            if (beta != T(0)) value += beta * c(i, j);
            c(i, j) = hermitian && i == j ? T(real_part(value)) : value;
        }
    }
}

// X of A X = B, in the place of B [n, columns]; A is lower triangular, or upper.
template <class T>
void solve(bool lower, bool has_ones, int64_t n, int64_t columns, Strided<const T> a,
           Strided<T> b) {
    constexpr int64_t block = 64;  // what lies beside it is a product
    for (int64_t done = 0; done < n; done += block) {
        const int64_t size = std::min(block, n - done), first = lower ? done : n - done - size;
        for (int64_t column = 0; column < columns; column++)
            for (int64_t l = 0; l < size; l++) {
                const int64_t p = lower ? first + l : first + size - 1 - l;
                T& x = b(p, column);
                if (!has_ones) x /= a(p, p);
                const int64_t begin = lower ? p + 1 : first, end = lower ? first + size : p;
                for (int64_t i = begin; i < end; i++) b(i, column) -= x * a(i, p);
            }
        const int64_t rest = n - done - size, next = lower ? first + size : 0;
        multiply<T>(
            rest, columns, size, 1, T(-1), a.at(next, first), b.at(first, 0), T(1), b.at(next, 0));
    }
}

// X of op(A) X = alpha B or X op(A) = alpha B, in the place of B [m, n].
template <class T>
void solve(cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t op,
           cublasDiagType_t diag, int64_t m, int64_t n, T alpha, Strided<const T> a, Strided<T> b) {
    scale<T>(m, n, alpha, b);
    if (alpha == T(0)) return;
    const bool is_left = side == CUBLAS_SIDE_LEFT;
    const int64_t size = is_left ? m : n, columns = is_left ? n : m;
    Numbers<T> whole = triangle<T>(uplo, op, diag, size, a);
    Strided<const T> matrix{whole, 1, size};
    bool lower = (uplo == CUBLAS_FILL_MODE_LOWER) == (op == CUBLAS_OP_N);
    if (!is_left) matrix = matrix.transposed(), lower = !lower, b = b.transposed();
    solve<T>(lower, diag == CUBLAS_DIAG_UNIT, size, columns, matrix, b);
}

// P A = L U in A's place. A row's pivot, counted from 1, is the row that it was exchanged with;
// without pivots no rows are. The answer is the first diagonal element of U that is 0, from 1.
template <class T>
int factorize(int64_t n, Strided<T> a, int* pivots) {
    int singular = 0;
    for (int64_t p = 0; p < n; p++) {
        if (pivots) {
            int64_t best = p;
            for (int64_t i = p + 1; i < n; i++)
                if (magnitude(a(i, p)) > magnitude(a(best, p))) best = i;
            pivots[p] = int(best + 1);
            if (best != p)
                for (int64_t j = 0; j < n; j++) std::swap(a(p, j), a(best, j));
        }
        if (a(p, p) == T(0)) {
            if (!singular) singular = int(p + 1);
            continue;
        }
        for (int64_t i = p + 1; i < n; i++) a(i, p) /= a(p, p);
        for (int64_t j = p + 1; j < n; j++)
            for (int64_t i = p + 1; i < n; i++) a(i, j) -= a(i, p) * a(p, j);
    }
    return singular;
}

// X of op(A) X = B in the place of B [n, columns], from A's factors.
template <class T>
void solve_factorized(cublasOperation_t op, int64_t n, int64_t columns, Strided<const T> lu,
                      const int* pivots, Strided<T> b) {
    const auto exchange = [&](int64_t p) {
        if (pivots && pivots[p] != p + 1)
            for (int64_t j = 0; j < columns; j++) std::swap(b(p, j), b(pivots[p] - 1, j));
    };
    const auto with = [&](cublasFillMode_t uplo, cublasDiagType_t diag) {
        solve<T>(CUBLAS_SIDE_LEFT, uplo, op, diag, n, columns, T(1), lu, b);
    };
    if (op == CUBLAS_OP_N) {
        for (int64_t p = 0; p < n; p++) exchange(p);
        with(CUBLAS_FILL_MODE_LOWER, CUBLAS_DIAG_UNIT);
        with(CUBLAS_FILL_MODE_UPPER, CUBLAS_DIAG_NON_UNIT);
    } else {
        with(CUBLAS_FILL_MODE_UPPER, CUBLAS_DIAG_NON_UNIT);
        with(CUBLAS_FILL_MODE_LOWER, CUBLAS_DIAG_UNIT);
        for (int64_t p = n; p-- > 0;) exchange(p);
    }
}

template <class T>
void set_identity(int64_t n, Strided<T> c) {
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) c(i, j) = T(i == j);
}

}  // namespace
}  // namespace simulator::cublas
