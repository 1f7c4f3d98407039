// The special functions that CUDA has and C's <math.h> has not. Those on float are worked out in
// double.
#pragma once
#include <math.h>
#include "block.h"

namespace simulator {

constexpr double pi = 3.14159265358979323846;
constexpr double root_two = 1.41421356237309504880, root_pi = 1.77245385090551602730;

// exp(x * x) to the last digits: the square's rounding error matters when x is large.
inline double exp_of_square(double x) {
    const double square = x * x;
    return exp(square) * (1 + fma(x, x, -square));
}

inline double scaled_erfc(double x) {
    if (x < 25) return exp_of_square(x) * erfc(x);  // below -26.6 infinite
    // 1 - 1 / (2 x^2) + 1 * 3 / (2 x^2)^2 - ...
    const double ratio = 1 / (2 * x * x);
    double sum = 1;
    for (int k = 13; k > 0; k -= 2) sum = 1 - k * ratio * sum;
    return sum / (x * root_pi);
}

// 1/4 of a turn at a time, so that multiples of a half are exact.
inline void sine_cosine_pi(double x, double* sine, double* cosine) {
    const double turn = remainder(x, 2), quarters = rint(2 * turn);
    const double angle = pi * (turn - quarters / 2);
    const double s = sin(angle), c = cos(angle);
    switch (int(quarters) & 3) {
        case 0:
            *sine = s, *cosine = c;
            break;
        case 1:
            *sine = c, *cosine = 0 - s;
            break;
        case 2:
            *sine = s == 0 ? s : -s, *cosine = -c;
            break;
        default:
            *sine = -c, *cosine = s + 0;
    }
    if (!(x - x == 0)) *sine = *cosine = x - x;
}

// Newton's iteration, in the logarithm where the value is small.
inline double inverse_erfc(double y);
inline double inverse_erf(double y) {
    if (!(fabs(y) <= 0.5)) return y > 0 ? inverse_erfc(1 - y) : -inverse_erfc(1 + y);
    double x = root_pi / 2 * y * (1 + pi / 12 * y * y);
    for (int i = 0; i < 4; i++) x -= (erf(x) - y) * (root_pi / 2) * exp(x * x);
    return y == 0 ? y : x;
}
inline double inverse_erfc(double y) {
    if (!(y >= 0 && y <= 2)) return __builtin_nan("");
    if (y == 0) return __builtin_inf();
    if (y == 2) return -__builtin_inf();
    if (y > 1.5) return -inverse_erfc(2 - y);
    if (y >= 0.5) return inverse_erf(1 - y);
    const double t = sqrt(-2 * (log(y) - 0.69314718055994530942));
    double x = (t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                        (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))) /
               root_two;  // Abramowitz and Stegun, 26.2.23: to 4.5e-4
    for (int i = 0; i < 3; i++) x += log(erfc(x) / y) * scaled_erfc(x) * (root_pi / 2);
    return x;
}

// erfc(-x / sqrt(2)) / 2, with what the quotient's rounding leaves.
inline double normal_distribution(double x) {
    if (!(fabs(x) < 40)) return x != x ? x : x > 0;
    const double z = -x / root_two,
                 rest = (-fma(z, root_two, x) - z * -9.667293313452913e-17) / root_two;
    return (erfc(z) - 2 / root_pi * exp(-z * z) * rest) / 2;
}

// I0 (order 0) and I1: the power series, whose terms are all positive, and for large x the
// asymptotic one.
inline double modified_bessel(int order, double x) {
    const double size = fabs(x), sign = order && x < 0 ? -1 : 1;
    if (!(size < 800)) return x != x ? x : sign * __builtin_inf();
    double term = order ? size / 2 : 1, sum = term;
    if (size < 30) {
        for (int k = 1; term > sum * 1e-18; k++)
            sum += term *= (size / 2) * (size / 2) / (k * double(k + order));
        return sign * sum;
    }
    term = sum = 1;
    for (int k = 1; k < 40 && fabs(term) > 1e-18; k++)
        sum += term *= ((2 * k - 1) * (2 * k - 1) - 4.0 * order) / (8 * k * size);
    const double root = exp(size / 2);
    return sign * root * (root / sqrt(2 * pi * size) * sum);
}

template <class T>
SIMULATOR_INLINE double length(int count, const T* x) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum = hypot(sum, double(x[i]));
    return sum;
}

}  // namespace simulator

// For double under CUDA's name, for float with an f at its end, and for float under the same name.
#define SIMULATOR_SPECIAL(name, parameters, float_parameters, expression)         \
    SIMULATOR_INLINE double name parameters { return expression; }                \
    SIMULATOR_INLINE float name##f float_parameters { return float(expression); } \
    SIMULATOR_INLINE float name float_parameters { return float(expression); }
#define SIMULATOR_SPECIAL_1(name, expression) \
    SIMULATOR_SPECIAL(name, (double x), (float x), expression)
SIMULATOR_SPECIAL_1(rcbrt, 1 / ::cbrt(double(x)))
SIMULATOR_SPECIAL_1(erfcx, simulator::scaled_erfc(x))
SIMULATOR_SPECIAL_1(erfinv, simulator::inverse_erf(x))
SIMULATOR_SPECIAL_1(erfcinv, simulator::inverse_erfc(x))
SIMULATOR_SPECIAL_1(normcdf, simulator::normal_distribution(x))
SIMULATOR_SPECIAL_1(normcdfinv, -simulator::root_two* simulator::inverse_erfc(2 * double(x)))
SIMULATOR_SPECIAL_1(cyl_bessel_i0, simulator::modified_bessel(0, x))
SIMULATOR_SPECIAL_1(cyl_bessel_i1, simulator::modified_bessel(1, x))
SIMULATOR_SPECIAL(rhypot, (double x, double y), (float x, float y),
                  1 / ::hypot(double(x), double(y)))
SIMULATOR_SPECIAL(norm3d, (double x, double y, double z), (float x, float y, float z),
                  ::hypot(::hypot(double(x), double(y)), double(z)))
SIMULATOR_SPECIAL(rnorm3d, (double x, double y, double z), (float x, float y, float z),
                  1 / norm3d(double(x), double(y), double(z)))
SIMULATOR_SPECIAL(norm4d, (double x, double y, double z, double t),
                  (float x, float y, float z, float t),
                  ::hypot(::hypot(double(x), double(y)), ::hypot(double(z), double(t))))
SIMULATOR_SPECIAL(rnorm4d, (double x, double y, double z, double t),
                  (float x, float y, float z, float t),
                  1 / norm4d(double(x), double(y), double(z), double(t)))
SIMULATOR_SPECIAL(norm, (int count, const double* x), (int count, const float* x),
                  simulator::length(count, x))
SIMULATOR_SPECIAL(rnorm, (int count, const double* x), (int count, const float* x),
                  1 / simulator::length(count, x))
#undef SIMULATOR_SPECIAL_1
#undef SIMULATOR_SPECIAL

SIMULATOR_INLINE void sincospi(double x, double* s, double* c) {
    simulator::sine_cosine_pi(x, s, c);
}
SIMULATOR_INLINE void sincospif(float x, float* s, float* c) {
    double sine, cosine;
    simulator::sine_cosine_pi(x, &sine, &cosine);
    *s = float(sine), *c = float(cosine);
}
SIMULATOR_INLINE void sincospi(float x, float* s, float* c) { sincospif(x, s, c); }
SIMULATOR_INLINE double sinpi(double x) {
    double sine, cosine;
    sincospi(x, &sine, &cosine);
    return sine;
}
SIMULATOR_INLINE double cospi(double x) {
    double sine, cosine;
    sincospi(x, &sine, &cosine);
    return cosine;
}
SIMULATOR_INLINE float sinpif(float x) { return float(sinpi(double(x))); }
SIMULATOR_INLINE float cospif(float x) { return float(cospi(double(x))); }
SIMULATOR_INLINE float sinpi(float x) { return sinpif(x); }
SIMULATOR_INLINE float cospi(float x) { return cospif(x); }
SIMULATOR_INLINE void sincos(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
