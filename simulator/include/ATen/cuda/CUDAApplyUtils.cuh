// What is included with PyTorch's element-wise loops, which extensions seldom call. The loops
// themselves are not here.
#pragma once
#include <ATen/ceil_div.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/ApplyGridUtils.cuh>
#include "Atomic.cuh"
#include "CUDAContext.h"
