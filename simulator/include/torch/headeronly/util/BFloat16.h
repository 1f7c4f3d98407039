// As Half.h, of PyTorch's bfloat16.
#pragma once
#ifdef SIMULATOR_CUDACC
#include <torch/headeronly/macros/Macros.h>
#include <torch/headeronly/util/bit_cast.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iosfwd>
#include <ostream>
#include "../../../cuda_bf16.h"
#define __CUDACC__ 1
#endif
#include_next <torch/headeronly/util/BFloat16.h>
#ifdef SIMULATOR_CUDACC
#undef __CUDACC__
#endif
