"""softmax: e^x / sum of e^x, row by row."""

import torch
from torch import Tensor

import jitload
from kernels import version_number

kernel = jitload.load("softmax")
VERSIONS = ("naive", "online", "vector", "cluster", "stream")


def softmax(x: Tensor, *, version: str = VERSIONS[-1]) -> Tensor:
    """e^x / sum of e^x over the last dimension of x [..., cols].

    x is float64, float32, float16 or bfloat16; the result is contiguous and has x's shape and type.
    The max of each row is subtracted first, so that no power overflows; the sum is a float (a
    double for double). As in PyTorch, a row that holds a NaN or +infinity, or nothing but
    -infinity, becomes NaN. Gradients have the same bits on every run, and those of every order are
    right.

    Raises RuntimeError if x has another type, no dimension or is not where the kernel runs, and
    ValueError if the version is unknown.
    """
    return kernel.forward(x, version_number(version, VERSIONS))


@kernel.register_fake("forward")
def _(x, version):
    return x.new_empty(x.shape)


@kernel.register_fake("backward")
def _(grad, y, version):
    return y.new_empty(y.shape)


def _save_backward(ctx, inputs, output):
    grad, y, ctx.version = inputs
    ctx.save_for_backward(grad, y)


def _double_backward(ctx, grad_dx):
    """Of dx = y * (grad - sum of grad * y), which is linear in grad.

    Through grad comes the same kernel again; through y a composition of PyTorch's ops.
    """
    grad, y = ctx.saved_tensors
    wide = torch.promote_types(y.dtype, torch.float32)
    h, g, p = grad_dx.to(wide), grad.to(wide), y.to(wide)
    along_g, along_h = (g * p).sum(-1, keepdim=True), (h * p).sum(-1, keepdim=True)
    dy = h * (g - along_g) - g * along_h
    return kernel.backward(grad_dx, y, ctx.version), dy.to(y.dtype), None


kernel.register_autocast("forward")
kernel.register_autograd("forward", "x = backward(grad, result, version)")
kernel.register_autograd("backward", _double_backward, setup_context=_save_backward)
