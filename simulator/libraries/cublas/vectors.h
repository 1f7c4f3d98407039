// Vectors, and matrices with vectors. A vector whose step is negative is counted from its end.
#pragma once
#include "matrices.h"

namespace simulator::cublas {
namespace {

template <class T>
struct Vector {
    T* first;
    int64_t step;

    Vector(T* data, int64_t n, int64_t step)
        : first(step < 0 && n > 0 ? data - (n - 1) * step : data), step(step) {}
    T& operator[](int64_t i) const { return first[i * step]; }
};

// Sums of floats are taken in double: they are right to the last digit.
template <class T>
struct Wide {
    using type = double;
};
template <class R>
struct Wide<std::complex<R>> {
    using type = std::complex<double>;
};

template <class T>
double magnitude(T x) {
    if constexpr (is_complex<T>)
        return std::abs(double(x.real())) + std::abs(double(x.imag()));
    else
        return std::abs(double(x));
}

// The first of the largest or smallest, counted from 1; 0 where there is none.
template <class T>
int extreme(int64_t n, const T* x, int64_t step, bool largest) {
    if (n <= 0 || step <= 0) return 0;
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        const double one = magnitude(x[i * step]), other = magnitude(x[best * step]);
        if (largest ? one > other : one < other) best = i;
    }
    return int(best + 1);
}

template <class T>
double sum_of_magnitudes(int64_t n, const T* x, int64_t step) {
    double sum = 0;
    if (step > 0)
        for (int64_t i = 0; i < n; i++) sum += magnitude(x[i * step]);
    return sum;
}

// Scaled, so that no square runs over.
template <class T>
double norm(int64_t n, const T* x, int64_t step) {
    if (n <= 0 || step <= 0) return 0;
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = std::abs(x[i * step]);
        if (!(size <= largest)) largest = size;
    }
    if (largest == 0 || !std::isfinite(largest)) return largest;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double part = std::abs(x[i * step]) / largest;
        sum += part * part;
    }
    return largest * sqrt(sum);
}

template <bool conjugated, class T>
T dot(int64_t n, Vector<const T> x, Vector<const T> y) {
    using W = typename Wide<T>::type;
    W sum = 0;
    for (int64_t i = 0; i < n; i++) sum += W(conjugated ? conjugate(x[i]) : x[i]) * W(y[i]);
    return T(sum);
}

template <class T, class R, class Sine>
void rotate(int64_t n, Vector<T> x, Vector<T> y, R cosine, Sine sine) {
    for (int64_t i = 0; i < n; i++) {
        const T a = x[i], b = y[i];
        x[i] = cosine * a + sine * b;
        y[i] = cosine * b - conjugate(sine) * a;
    }
}

// The rotation that turns (a, b) to (r, 0); a becomes r, and b what tells the rotation again.
template <class T>
void make_rotation(T& a, T& b, T& cosine, T& sine) {
    const T larger = std::abs(a) > std::abs(b) ? a : b, size = std::abs(a) + std::abs(b);
    if (size == 0) {
        cosine = 1, sine = 0, a = 0, b = 0;
        return;
    }
    const T x = a / size, y = b / size;
    const T r = std::copysign(size * std::sqrt(x * x + y * y), larger);
    cosine = a / r, sine = b / r;
    b = std::abs(a) > std::abs(b) ? sine : cosine != 0 ? 1 / cosine : T(1);
    a = r;
}
template <class R>
void make_rotation(std::complex<R>& a, std::complex<R>& b, R& cosine, std::complex<R>& sine) {
    const R size = std::abs(a);
    if (size == 0) {
        cosine = 0, sine = 1, a = b;
        return;
    }
    const R r = std::hypot(size, std::abs(b));
    const std::complex<R> direction = a / size;
    cosine = size / r;
    sine = direction * std::conj(b) / r;
    a = direction * r;
}

// The modified Givens rotation that parameters[0] names: which of its elements are 1, -1 or 0.
template <class T>
void rotate_modified(int64_t n, Vector<T> x, Vector<T> y, const T* parameters) {
    const T flag = parameters[0];
    if (flag == T(-2)) return;
    const T h11 = flag == T(0) ? T(1) : parameters[1], h21 = flag == T(1) ? T(-1) : parameters[2];
    const T h12 = flag == T(1) ? T(1) : parameters[3], h22 = flag == T(0) ? T(1) : parameters[4];
    for (int64_t i = 0; i < n; i++) {
        const T a = x[i], b = y[i];
        x[i] = h11 * a + h12 * b;
        y[i] = h21 * a + h22 * b;
    }
}

// y = alpha op(A) x + beta y, with op(A) [m, n] as a view.
template <class T>
void multiply_vector(int64_t m, int64_t n, T alpha, Strided<const T> a, bool conjugated,
                     Vector<const T> x, T beta, Vector<T> y) {
    Numbers<T> from(n), to(m);
    for (int64_t i = 0; i < n; i++) from[i] = conjugated ? conjugate(x[i]) : x[i];
    multiply<T>(m, 1, n, 1, T(1), a, {from, 1, n}, T(0), {to, 1, m});
    for (int64_t i = 0; i < m; i++) {
        const T value = alpha == T(0) ? T(0) : alpha * (conjugated ? conjugate(to[i]) : to[i]);
        y[i] = beta == T(0) ? value : value + beta * y[i];
    }
}

// A += alpha x y^T, whole or, where rows say which, a triangle of it.
template <class T, class Rows>
void add_outer(int64_t n, T alpha, Vector<const T> x, Vector<const T> y, bool conjugated,
               Strided<T> a, Rows rows) {
    if (alpha == T(0)) return;
    for (int64_t j = 0; j < n; j++) {
        const T times = alpha * (conjugated ? conjugate(y[j]) : y[j]);
        const auto [begin, end] = rows(j);
        for (int64_t i = begin; i < end; i++) a(i, j) += x[i] * times;
    }
}

}  // namespace
}  // namespace simulator::cublas
