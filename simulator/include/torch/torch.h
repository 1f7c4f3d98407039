// In an extension, all of PyTorch's C++ API means <torch/extension.h>.
#pragma once
#ifdef SIMULATOR_ALL_OF_TORCH
#include_next <torch/torch.h>
#else
#include <torch/extension.h>
#endif
