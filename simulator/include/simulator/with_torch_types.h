// As with_torch.h, of a .cu that goes on with less of PyTorch.
#pragma once
#include <simulator/nvcc.h>
#include <torch/types.h>
