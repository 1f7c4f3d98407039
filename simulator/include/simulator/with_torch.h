// What a .cu includes first that goes on with PyTorch's headers: parsed once, for all of them.
#pragma once
#include <simulator/nvcc.h>
#include <torch/extension.h>
