// What a .cpp includes first that begins with PyTorch's headers: parsed once, for all of them.
#pragma once
#include <torch/extension.h>
