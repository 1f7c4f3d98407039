"""layer_norm: y = (x - mean) / sqrt(var + eps) * weight + bias, row by row."""

import torch
from torch import Tensor

import jitload
from kernels import check_buffers, version_number

kernel = jitload.load("layer_norm")
VERSIONS = ("naive", "block", "vector", "cluster", "stream")


def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
    *,
    dweight: Tensor | None = None,
    dbias: Tensor | None = None,
    version: str = VERSIONS[-1],
) -> Tensor:
    """Each row of x [..., cols], shifted and scaled to mean 0 and variance 1, * weight + bias.

    weight and bias are [cols]; all tensors are of one type: float64, float32, float16 or bfloat16.
    The variance divides by cols; eps is added to it. The result is contiguous and has x's shape and
    type; mean and deviation are kept in float (double for double). Gradients have the same bits on
    every run. There is no second derivative: asking for one raises RuntimeError.

    dweight, dbias: both or neither; buffers [cols] of float32 (float64 if x is), contiguous, such
    as weight.main_grad in Megatron. Backward adds the gradients of weight and bias to them,
    unrounded, and gives autograd none: weight.grad stays as it is. So gradients of many
    micro-batches add up in float32 whatever the type of weight. Every backward pass adds, also one
    that was asked for the gradient of x alone.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if the version is unknown or one of dweight and dbias is missing.

    Source: Ba, Kiros, Hinton, "Layer Normalization", 2016.
    """
    check_buffers(dweight, dbias)
    number = version_number(version, VERSIONS)
    return _forward(x, weight, bias, eps, number, dweight, dbias)


def _new_sums(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=torch.promote_types(x.dtype, torch.float32))


@kernel.register_fake("infer")
def _(x, weight, bias, eps, version):
    return x.new_empty(x.shape)


@kernel.register_fake("forward")
def _(x, weight, bias, eps, version, dweight=None, dbias=None):
    return x.new_empty(x.shape), _new_sums(x), _new_sums(x)


@kernel.register_fake("backward")
def _(grad, x, weight, mean, rstd, version):
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape)


@kernel.register_fake("backward_into")
def _(grad, x, weight, mean, rstd, dweight, dbias, version):
    return x.new_empty(x.shape)


def _double_backward(ctx, *grads):
    raise RuntimeError(
        "layer_norm has no second derivative; where you need one, use "
        "torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)"
    )


kernel.register_autocast("infer")
kernel.register_autocast("forward", keep=("dweight", "dbias"))
_forward = kernel.register_autograd(
    "forward",
    """
    x = backward_into(grad, x, weight, mean, rstd, dweight, dbias, version)
    x, weight, bias = backward(grad, x, weight, mean, rstd, version)
    """,
    infer="infer",
)
kernel.register_autograd("backward", _double_backward)
