"""swiglu: y = silu(a) * b, element by element."""

import torch
from torch import Tensor

import jitload
from kernels import new_quantized, no_gradient, scaling_number, version_number

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


def swiglu_fp8(a: Tensor, b: Tensor, scaling: str = "row") -> tuple[Tensor, Tensor]:
    """(q, scale): the result of swiglu for a and b [..., cols] in float8_e4m3fn, and its scales.

    They are those of quantize(swiglu(a, b), scaling), bit for bit, but the result of swiglu is
    never in memory. scaling is "row" or "1x128": see `kernels.quantize`. a and b are float32,
    float16 or bfloat16.

    Raises RuntimeError as swiglu does, or if the result is differentiated, and ValueError if
    scaling is unknown.
    """
    return kernel.forward_fp8(a, b, scaling_number(scaling, ("row", "1x128")))


@kernel.register_fake("forward")
def _(a, b, version):
    return a.new_empty(a.shape)


@kernel.register_fake("forward_fp8")
def _(a, b, scaling):
    return new_quantized(a, scaling)


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


def _backward_fp8(ctx, *grads):
    no_gradient("swiglu_fp8")


kernel.register_autograd("forward_fp8", _backward_fp8)
