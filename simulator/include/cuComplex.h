// CUDA's complex numbers of float and double.
#pragma once
#define CU_COMPLEX_H_
#include <math.h>
#include "cuda_runtime.h"

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

// A quotient and an absolute value are scaled by the larger part, lest a square overflow.
#define SIMULATOR_COMPLEX(T, Complex, real, imag, conj, make, add, sub, mul, div, abs, fma_, f) \
    SIMULATOR_INLINE T real(Complex x) { return x.x; }                                          \
    SIMULATOR_INLINE T imag(Complex x) { return x.y; }                                          \
    SIMULATOR_INLINE Complex make(T x, T y) { return {x, y}; }                                  \
    SIMULATOR_INLINE Complex conj(Complex x) { return {x.x, -x.y}; }                            \
    SIMULATOR_INLINE Complex add(Complex x, Complex y) { return {x.x + y.x, x.y + y.y}; }       \
    SIMULATOR_INLINE Complex sub(Complex x, Complex y) { return {x.x - y.x, x.y - y.y}; }       \
    SIMULATOR_INLINE Complex mul(Complex x, Complex y) {                                        \
        return {x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x};                                  \
    }                                                                                           \
    SIMULATOR_INLINE Complex div(Complex x, Complex y) {                                        \
        const T scale = 1 / (fabs##f(y.x) + fabs##f(y.y));                                      \
        const Complex a = {x.x * scale, x.y * scale}, b = {y.x * scale, y.y * scale};           \
        const T size = 1 / (b.x * b.x + b.y * b.y);                                             \
        return {(a.x * b.x + a.y * b.y) * size, (a.y * b.x - a.x * b.y) * size};                \
    }                                                                                           \
    SIMULATOR_INLINE T abs(Complex x) { return hypot##f(x.x, x.y); }                            \
    SIMULATOR_INLINE Complex fma_(Complex x, Complex y, Complex z) { return add(mul(x, y), z); }
SIMULATOR_COMPLEX(float, cuFloatComplex, cuCrealf, cuCimagf, cuConjf, make_cuFloatComplex, cuCaddf,
                  cuCsubf, cuCmulf, cuCdivf, cuCabsf, cuCfmaf, f)
SIMULATOR_COMPLEX(double, cuDoubleComplex, cuCreal, cuCimag, cuConj, make_cuDoubleComplex, cuCadd,
                  cuCsub, cuCmul, cuCdiv, cuCabs, cuCfma, )
#undef SIMULATOR_COMPLEX

SIMULATOR_INLINE cuComplex make_cuComplex(float x, float y) { return {x, y}; }
SIMULATOR_INLINE cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex x) { return {x.x, x.y}; }
SIMULATOR_INLINE cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex x) {
    return {float(x.x), float(x.y)};
}
