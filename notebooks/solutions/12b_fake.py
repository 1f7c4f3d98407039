"""The result is packed whatever x is, and the roots are float32, or float64 for float64."""

import torch


def answer(x, weight, eps, version, dweight=None):
    sums = torch.promote_types(x.dtype, torch.float32)
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=sums)
