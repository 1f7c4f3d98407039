"""relu: y = max(x, 0), element by element."""

import torch
from torch import Tensor

import jitload
from kernels import version_number

kernel = jitload.load("relu")
VERSIONS = ("naive", "vector", "bits")


def relu(x: Tensor, *, version: str = VERSIONS[-1]) -> Tensor:
    """max(x, 0) for a tensor of any shape, in float64, float32, float16 or bfloat16; NaN stays NaN.

    The result is contiguous and has x's shape and type. The gradient at 0 is 0, as in PyTorch.
    Gradients of every order are right: y is a constant to the gradient, which is linear in grad.
    For them y is kept, and by version "bits" one byte for each 16 bytes of x instead.

    Raises RuntimeError if x has another type or is not where the kernel runs, and ValueError if the
    version is unknown.
    """
    number = version_number(version, VERSIONS)
    if version == "bits" and torch.is_grad_enabled() and getattr(x, "requires_grad", False):
        return kernel.forward_mask(x)[0]
    return kernel.forward(x, number)


@kernel.register_fake("forward")
def _(x, version):
    return x.new_empty(x.shape)


@kernel.register_fake("backward")
def _(grad, y, version):
    return y.new_empty(y.shape)


kernel.register_autograd("forward", "x = backward(grad, result, version)")
kernel.register_autograd("backward", "grad = backward(grad_dx, y, version)")


@kernel.register_fake("forward_mask")
def _(x):
    count = (x.numel() * x.itemsize + 15) // 16  # a byte for each 16 bytes of x
    return x.new_empty(x.shape), x.new_empty((count,), dtype=torch.uint8)


@kernel.register_fake("backward_mask")
def _(grad, mask):
    return grad.new_empty(grad.shape)


kernel.register_autograd("forward_mask", "x = backward_mask(grad, mask)")
kernel.register_autograd("backward_mask", "grad = backward_mask(grad_dx, mask)")
