"""quantize_nvfp4: numbers as floats of four bits, with a scale for each 16 neighbours of a row."""

import ctypes
import math

import torch
from torch import Tensor

import jitload
from kernels import new_block_scales, no_gradient, version_number

kernel = jitload.load("quantize_nvfp4")
VERSIONS = ("naive", "vector")


def quantize_nvfp4(
    x: Tensor, scale: Tensor | float | None = None, *, version: str = VERSIONS[-1]
) -> tuple[Tensor, Tensor, Tensor]:
    """(q, scales, scale) with q * scales * scale close to x [..., cols]: NVIDIA's NVFP4.

    q is float4_e2m1fn_x2 [..., cols / 2], two numbers in a byte, the first in its lower half.
    scales is float8_e4m3fn, one for each 16 neighbours of a row, in the layout of
    `kernels.quantize_mxfp8`: [512 * ceil(rows / 128) * ceil(cols / 64)]. scale is float32, one
    positive number for the whole tensor, given as a tensor or as a number of Python; what is not
    given is largest / (448 * 6) for the largest |x|, at least 2^-126, and x is read once more for
    that. 448 and 6 are the largest numbers of float8_e4m3fn and of e2m1, so the scales of blocks
    are at most 448.

    x is float32, float16 or bfloat16; cols is a multiple of 16. A block's scale is largest /
    (6 * scale), rounded to nearest and cut off at 448; q is x * (1 / (its scale * scale)), rounded
    to nearest, ties to even, and cut off at 6. So Transformer Engine does by default, without its
    random Hadamard transforms and stochastic rounding; torchao lifts the scales of blocks to 2^-6,
    too. Where an element is NaN or infinite, its block has the scale NaN (with no scale given, all
    blocks do); where a block's scale is NaN or 0, its elements are 0.

    The value of a tensor is not looked at, since that would wait for the GPU. If scale is 0 or NaN,
    all elements are 0; if it is negative, so are the scales of blocks, which tensor cores do not
    take (they read no sign).

    Raises RuntimeError if a tensor has another type or shape, a wrong number of columns, or is not
    where the kernel runs, or if the result is differentiated, and ValueError if the version is
    unknown or a number given as scale is not positive and finite in float32.

    Sources: NVIDIA, "Pretraining large language models with NVFP4", 2025, appendix C; NVIDIA,
    cuBLAS documentation, "1D block scaling factors layout".
    """
    if scale is None:
        scale = _scale_of(x)
    elif not isinstance(scale, Tensor):
        scale = _positive(scale, x.device)
    return *kernel.forward(x, scale, version_number(version, VERSIONS)), scale


def _scale_of(x: Tensor) -> Tensor:
    if x.numel() == 0 or not x.is_floating_point():  # of which the kernel tells
        return torch.ones((), device=x.device)
    largest = torch.linalg.vector_norm(x.detach(), torch.inf).float()
    return (largest / (448 * 6)).clamp(min=2.0**-126)


def _positive(scale: float, device: torch.device) -> Tensor:
    rounded = ctypes.c_float(scale).value
    if not 0 < rounded < math.inf:
        raise ValueError(
            f"scale is {scale}; wanted is a number that is positive and finite in float32"
        )
    return torch.full((), rounded, device=device)


@kernel.register_fake("forward")
def _(x, scale, version):
    *leading, cols = x.shape
    return (
        x.new_empty((*leading, cols // 2), dtype=torch.float4_e2m1fn_x2),
        new_block_scales(x, 16, torch.float8_e4m3fn),
    )


def _setup_context(ctx, inputs, output):
    ctx.set_materialize_grads(False)  # on a GPU PyTorch cannot fill floats of four bits with zeros


def _backward(ctx, *grads):
    no_gradient("quantize_nvfp4")


kernel.register_autograd("forward", _backward, setup_context=_setup_context)
