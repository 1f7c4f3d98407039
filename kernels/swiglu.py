"""swiglu: y = silu(a) * b, element by element."""

import torch
from torch import Tensor

import jitload
from kernels import version_number

kernel = jitload.load("swiglu")
VERSIONS = ("naive", "vector")


def swiglu(a: Tensor, b: Tensor, *, version: str = VERSIONS[-1]) -> Tensor:
    """silu(a) * b = a / (1 + e^-a) * b for two tensors of one shape.

    Both are of one type: float64, float32, float16 or bfloat16. The result is contiguous, has their
    shape and type, and is rounded once. Gradients of every order are right.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if the version is unknown.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020.
    """
    return kernel.forward(a, b, version_number(version, VERSIONS))


@kernel.register_fake("forward")
def _(a, b, version):
    return a.new_empty(a.shape)


@kernel.register_fake("backward")
def _(grad, a, b, version):
    return a.new_empty(a.shape), b.new_empty(b.shape)


def _save_backward(ctx, inputs, output):
    grad, a, b, ctx.version = inputs
    ctx.save_for_backward(grad, a, b)


def _double_backward(ctx, grad_da, grad_db):
    """Of da = grad * b * silu'(a) and db = grad * silu(a), composed of PyTorch's ops."""
    wide = torch.promote_types(grad_da.dtype, torch.float32)
    grad, a, b = ctx.saved_tensors
    g, x, z, u, v = (t.to(wide) for t in (grad, a, b, grad_da, grad_db))
    s = x.sigmoid()
    silu = x * s
    first = s + silu * (1 - s)  # silu'
    second = s * (1 - s) * (2 + x * (1 - 2 * s))  # silu''
    d_grad = u * z * first + v * silu
    d_a = g * (u * z * second + v * first)
    d_b = u * g * first
    return d_grad.to(grad.dtype), d_a.to(a.dtype), d_b.to(b.dtype), None


kernel.register_autocast("forward")
kernel.register_autograd("forward", "a, b = backward(grad, a, b, version)")
kernel.register_autograd("backward", _double_backward, setup_context=_save_backward)
