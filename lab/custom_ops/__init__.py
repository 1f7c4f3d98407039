"""Makes Python functions that call kernels into PyTorch ops."""
