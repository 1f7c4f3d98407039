"""Python functions that call kernels, made into ops of PyTorch's."""
