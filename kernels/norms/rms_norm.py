"""rms_norm: y = x / sqrt(mean of x * x + eps) * weight, row by row, perhaps of x + residual."""

import torch
from torch import Tensor

import jitload
from kernels import (
    new_quantized,
    no_gradient,
    scaling_number,
    version_number,
)

kernel = jitload.load("rms_norm")
VERSIONS = ("naive", "block", "vector", "cluster", "stream")


def rms_norm(
    x: Tensor,
    weight: Tensor,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    *,
    dweight: Tensor | None = None,
    version: str = VERSIONS[-1],
) -> Tensor | tuple[Tensor, Tensor]:
    """Each row of x [..., cols], divided by the root of its mean square, * weight.

    weight is [cols]. With a residual, which has x's shape, it is x + residual that is normalised,
    rounded to x's type, and the result is (y, x + residual): what the next layer adds to.

    All tensors are of one type: float64, float32, float16 or bfloat16. eps is added to the mean
    square. Results are contiguous and have x's shape and type; the root is kept in float (double
    for double). Gradients have the same bits on every run. There is no second derivative: asking
    for one raises RuntimeError.

    dweight: a buffer [cols] of float32 (float64 if x is), contiguous, such as weight.main_grad in
    Megatron. Backward adds the gradient of weight to it, unrounded, and gives autograd none:
    weight.grad stays as it is. So gradients of many micro-batches add up in float32 whatever the
    type of weight. Every backward pass adds, also one that was asked for the gradient of x alone.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if the version is unknown.

    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    number = version_number(version, VERSIONS)
    if residual is None:
        return _forward(x, weight, eps, number, dweight)
    return _add_forward(x, weight, residual, eps, number, dweight)


def rms_norm_fp8(
    x: Tensor,
    weight: Tensor,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    scaling: str = "row",
) -> tuple[Tensor, ...]:
    """(q, scale): the result of rms_norm in float8_e4m3fn, and its scales.

    With a residual it is (q, scale, x + residual). They are those of rms_norm and then
    quantize(..., scaling), but for the order in which squares are summed, and the result of
    rms_norm is never in memory. scaling is "row" or "1x128": see `kernels.quantize`. Tensors are
    float32, float16 or bfloat16.

    Raises RuntimeError as rms_norm does, or if a result is differentiated, and ValueError if
    scaling is unknown.
    """
    number = scaling_number(scaling, ("row", "1x128"))
    q, scale, total = kernel.forward_fp8(x, weight, residual, eps, number)
    return (q, scale) if residual is None else (q, scale, total)


def _new_sums(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=torch.promote_types(x.dtype, torch.float32))


@kernel.register_fake("infer")
def _(x, weight, eps, version):
    return x.new_empty(x.shape)


@kernel.register_fake("forward")
def _(x, weight, eps, version, dweight=None):
    return x.new_empty(x.shape), _new_sums(x)


@kernel.register_fake("add_infer")
def _(x, weight, residual, eps, version):
    return x.new_empty(x.shape), x.new_empty(x.shape)


@kernel.register_fake("add_forward")
def _(x, weight, residual, eps, version, dweight=None):
    return x.new_empty(x.shape), x.new_empty(x.shape), _new_sums(x)


@kernel.register_fake("forward_fp8")
def _(x, weight, residual, eps, scaling):
    total = x.new_empty(0 if residual is None else x.shape)
    return *new_quantized(x, scaling), total


@kernel.register_fake("backward")
def _(grad, grad_sum, x, weight, rstd, eps, version):
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


@kernel.register_fake("backward_into")
def _(grad, grad_sum, x, weight, rstd, dweight, eps, version):
    return x.new_empty(x.shape)


def _double_backward(ctx, *grads):
    raise RuntimeError(
        "rms_norm has no second derivative; where you need one, use "
        "torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)"
    )


def _backward_fp8(ctx, *grads):
    no_gradient("rms_norm_fp8")


kernel.register_autocast("infer")
kernel.register_autocast("add_infer")
kernel.register_autocast("forward", keep=("dweight",))
kernel.register_autocast("add_forward", keep=("dweight",))
_forward = kernel.register_autograd(
    "forward",
    """
    x = backward_into(grad, None, x, weight, rstd, dweight, eps, version)
    x, weight = backward(grad, None, x, weight, rstd, eps, version)
    """,
    infer="infer",
)
_add_forward = kernel.register_autograd(
    "add_forward",
    """
    x = residual = backward_into(grad, grad_sum, sum, weight, rstd, dweight, eps, version)
    (x, residual), weight = backward(grad, grad_sum, sum, weight, rstd, eps, version)
    """,
    infer="add_infer",
)
kernel.register_autograd("backward", _double_backward)
kernel.register_autograd("forward_fp8", _backward_fp8)
