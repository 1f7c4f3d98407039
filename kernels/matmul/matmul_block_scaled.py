"""matmul_block_scaled: the product of matrices in MXFP8 or NVFP4."""

import torch
from torch import Tensor

import jitload
from kernels import matmul, no_gradient, version_number

kernel = jitload.load("matmul_block_scaled")
VERSIONS = ("naive", "vector")


def matmul_block_scaled(
    x: Tensor,
    w: Tensor,
    x_scales: Tensor,
    w_scales: Tensor,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    *,
    version: str = VERSIONS[-1],
) -> Tensor:
    """(x * x_scales * x_scale) (w * w_scales * w_scale)^T for x [..., cols] and w [units, cols].

    x and w are both float8_e4m3fn with scales in float8_e8m0fnu, as `kernels.quantize_mxfp8` makes
    them, or both float4_e2m1fn_x2 [..., cols / 2] with scales in float8_e4m3fn, as
    `kernels.quantize_nvfp4` makes them. x_scale and w_scale are float32, one number for the whole
    tensor; None stands for 1. The result is bfloat16 [..., units] and contiguous, and has the same
    bits on every run.

    Only tensor cores of Blackwell multiply by scales of blocks. This op runs on any GPU: it writes
    x and w as bfloat16 into memory that is free again after the call, and `kernels.matmul`
    multiplies these. They are exact, but for the scales of whole tensors: x is multiplied by both
    and rounded. On Blackwell, torch._scaled_mm takes the same tensors, and
    notebooks/ladders/20_matmul_block_scales.cu shows how tensor memory does.

    Inside torch.autocast nothing is cast. Raises RuntimeError if a tensor has another type or shape
    or is not where the kernel runs, if numbers of four bits are neither contiguous nor in rows, or
    if the result is differentiated, and ValueError if the version is unknown.
    """
    number = version_number(version, VERSIONS)
    numbers = kernel.forward(x, w, x_scales, w_scales, x_scale, w_scale, number)
    with torch.autocast(numbers[0].device.type, enabled=False):
        return matmul.matmul(*numbers)


@kernel.register_fake("forward")
def _(x, w, x_scales, w_scales, x_scale, w_scale, version):
    per_byte = 2 if x.dtype == torch.float4_e2m1fn_x2 else 1
    return tuple(
        t.new_empty((*t.shape[:-1], t.shape[-1] * per_byte), dtype=torch.bfloat16) for t in (x, w)
    )


def _backward(ctx, *grads):
    no_gradient("matmul_block_scaled")


kernel.register_autograd("forward", _backward)
