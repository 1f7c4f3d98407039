// A binding without functions, whose build in set-up parses stable_torch.h for those to come.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}
