"""scale_bias_relu: y = max(x * scale + bias, 0), column by column, in one pass over x."""

from torch import Tensor

import jitload
from kernels import version_number

kernel = jitload.load("scale_bias_relu")
VERSIONS = ("naive", "vector")


def scale_bias_relu(
    x: Tensor, scale: Tensor | float, bias: Tensor, *, version: str = VERSIONS[-1]
) -> Tensor:
    """max(x * scale + bias, 0) for x [..., cols] and scale, bias [cols]; scale may be a number.

    All tensors are of one type: float64, float32, float16 or bfloat16. The result is contiguous and
    has x's shape and type; it is rounded once, where the three separate ops round twice. Gradients
    of every order are right; those of scale and bias have the same bits on every run.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if the version is unknown.
    """
    tensor, factor = (scale, 1.0) if isinstance(scale, Tensor) else (None, float(scale))
    return kernel.forward(x, tensor, factor, bias, version_number(version, VERSIONS))


@kernel.register_fake("forward")
def _(x, scale, factor, bias, version):
    return x.new_empty(x.shape)


@kernel.register_fake("backward")
def _(grad, x, scale, factor, bias, version):
    return x.new_empty(x.shape), bias.new_empty(bias.shape), bias.new_empty(bias.shape)


def _save_backward(ctx, inputs, output):
    grad, x, scale, ctx.factor, bias, ctx.version = inputs
    ctx.save_for_backward(grad, x, scale, bias)


def _double_backward(ctx, grad_dx, grad_dscale, grad_dbias):
    """The gradients of backward, in plain PyTorch: they are rarely wanted, so no kernel fuses them.

    With mask = (y > 0), a constant to the gradient, backward computes
    dx = grad * mask * scale, dscale = sum(grad * mask * x), dbias = sum(grad * mask).
    """
    grad, x, scale, bias = ctx.saved_tensors
    mask = kernel.forward(x, scale, ctx.factor, bias, ctx.version) > 0
    factor = ctx.factor if scale is None else scale
    d_grad = (grad_dx * factor + grad_dscale * x + grad_dbias) * mask
    d_x = grad * mask * grad_dscale
    d_scale = None if scale is None else (grad_dx * grad * mask).sum_to_size(scale.shape)
    return d_grad, d_x, d_scale, None, None, None


kernel.register_autocast("forward")
kernel.register_autograd(
    "forward", "x, scale, bias = backward(grad, x, scale, factor, bias, version)"
)
kernel.register_autograd("backward", _double_backward, setup_context=_save_backward)
