// CUDA's mathematical functions under one name for float and double.
#pragma once
#include <cuda_runtime.h>
#include "../../simulator/special.h"

namespace c10::cuda::compat {
#define SIMULATOR_TORCH_MATH_1(name)                                        \
    __host__ __device__ inline float name(float x) { return ::name##f(x); } \
    __host__ __device__ inline double name(double x) { return ::name(x); }
#define SIMULATOR_TORCH_MATH_2(name)                                                    \
    __host__ __device__ inline float name(float x, float y) { return ::name##f(x, y); } \
    __host__ __device__ inline double name(double x, double y) { return ::name(x, y); }
SIMULATOR_TORCH_MATH_1(exp)
SIMULATOR_TORCH_MATH_1(ceil)
SIMULATOR_TORCH_MATH_1(floor)
SIMULATOR_TORCH_MATH_1(log)
SIMULATOR_TORCH_MATH_1(log1p)
SIMULATOR_TORCH_MATH_1(sqrt)
SIMULATOR_TORCH_MATH_1(rsqrt)
SIMULATOR_TORCH_MATH_1(sin)
SIMULATOR_TORCH_MATH_1(cos)
SIMULATOR_TORCH_MATH_1(tan)
SIMULATOR_TORCH_MATH_1(tanh)
SIMULATOR_TORCH_MATH_1(normcdf)
SIMULATOR_TORCH_MATH_2(copysign)
SIMULATOR_TORCH_MATH_2(pow)
#undef SIMULATOR_TORCH_MATH_1
#undef SIMULATOR_TORCH_MATH_2
__host__ __device__ inline float abs(float x) { return ::fabsf(x); }
__host__ __device__ inline double abs(double x) { return ::fabs(x); }
__host__ __device__ inline float max(float x, float y) { return ::fmaxf(x, y); }
__host__ __device__ inline double max(double x, double y) { return ::fmax(x, y); }
__host__ __device__ inline float min(float x, float y) { return ::fminf(x, y); }
__host__ __device__ inline double min(double x, double y) { return ::fmin(x, y); }
__host__ __device__ inline float div(float x, float y) { return x / y; }
__host__ __device__ inline double div(double x, double y) { return x / y; }
}  // namespace c10::cuda::compat
