"""matmul_fp8: the product of matrices of floats of one byte, which scales turn into any numbers."""

import torch
from torch import Tensor

import jitload
from kernels import no_gradient, version_number

kernel = jitload.load("matmul_fp8")
VERSIONS = ("naive", "mma", "wgmma")
DTYPES = (torch.bfloat16, torch.float16)


def matmul_fp8(
    x: Tensor,
    w: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    bias: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    use_fast_accum: bool = False,
    *,
    version: str = VERSIONS[-1],
) -> Tensor:
    """(x * x_scale) (w * w_scale)^T + bias for x [..., cols] and w [units, cols], float8_e4m3fn.

    Scales are float32, as `kernels.quantize` makes them. x and w each have one scale for all, [],
    or one for each row: x_scale [..., 1], w_scale [units, 1]. Or both have one for each block:
    x_scale [..., ceil(cols / 128)] for 128 neighbours of a row, and w_scale [ceil(units / 128),
    ceil(cols / 128)] for 128 neighbours in each of 128 rows.

    bias is [units], of the result's type, which is dtype: bfloat16 or float16. The result is
    [..., units] and contiguous, is rounded once, and has the same bits on every run. x and w may
    have any size; they are read faster if their rows begin on multiples of 16 bytes, as they do if
    cols is a multiple of 16. Tensor cores sum over 128 of k at a time, and those sums are added up
    in float32: of sums of such products, Hopper's tensor cores keep only some 14 bits. With
    use_fast_accum, as in torch._scaled_mm, they may add up all of k alone, which is faster; scales
    of blocks cannot have that. Inside torch.autocast nothing is cast, as for torch._scaled_mm.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, if
    scales of blocks come with use_fast_accum, or if the result is differentiated, and ValueError if
    dtype is another type or the version is unknown.

    Sources: Micikevicius et al., "FP8 formats for deep learning", 2022; for the blocks and the sums
    DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.3.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype}; wanted is torch.bfloat16 or torch.float16")
    number = version_number(version, VERSIONS)
    return kernel.forward(x, w, x_scale, w_scale, bias, dtype, use_fast_accum, number)


@kernel.register_fake("forward")
def _(x, w, x_scale, w_scale, bias, dtype, use_fast_accum, version):
    return x.new_empty((*x.shape[:-1], w.shape[0]), dtype=dtype)


def _backward(ctx, grad):
    no_gradient("matmul_fp8")


kernel.register_autograd("forward", _backward)
