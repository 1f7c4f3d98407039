// PyTorch's C++ API as extensions use it: tensors, autograd and pybind11, without torch::nn, optim,
// data, jit and serialize. Those are half of what g++ has to do for the whole header.
//
// A source that uses them is compiled with SIMULATOR_ALL_OF_TORCH (toolchain.torch_headers).
#pragma once

#ifdef SIMULATOR_ALL_OF_TORCH
#include_next <torch/extension.h>
#else
#include <queue>  // of the standard headers, the only one that would be missing

#include <torch/autograd.h>
#include <torch/cuda.h>
#include <torch/fft.h>
#include <torch/sparse.h>
#include <torch/special.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_numbers.h>
#include <torch/csrc/utils/python_tuples.h>
#endif
