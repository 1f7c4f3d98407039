// As torch.h, of a .cpp that begins with less of PyTorch.
#pragma once
#include <torch/types.h>
