// PyTorch's half with its conversions to CUDA's, which its header has only where nvcc compiles.
// What that header includes comes first, for it must not take this for nvcc.
#pragma once
#ifdef SIMULATOR_CUDACC
#include <torch/headeronly/macros/Macros.h>
#include <torch/headeronly/util/bit_cast.h>
#include <torch/headeronly/util/floating_point_utils.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ostream>
#include "../../../cuda_fp16.h"
#if defined(__F16C__) && !defined(__clang__)
#include <immintrin.h>
#define C10_X86_F16 1
#endif
#define __CUDACC__ 1
#endif
#include_next <torch/headeronly/util/Half.h>
#ifdef SIMULATOR_CUDACC
#undef __CUDACC__
#endif
