"""quantize_mxfp8: numbers as floats of one byte, with a scale for each 32 neighbours of a row."""

import torch
from torch import Tensor

import jitload
from kernels import new_block_scales, no_gradient, version_number

kernel = jitload.load("quantize_mxfp8")
VERSIONS = ("naive", "vector")


def quantize_mxfp8(x: Tensor, *, version: str = VERSIONS[-1]) -> tuple[Tensor, Tensor]:
    """(q, scales) with q * scales close to x [..., cols]: MXFP8 of the OCP MX specification.

    q is float8_e4m3fn [..., cols]. scales is float8_e8m0fnu, one power of two for each 32
    neighbours of a row, in the layout that tensor memory, cuBLAS and torch._scaled_mm take
    (SWIZZLE_32_4_4): tiles of 512 bytes for 128 rows and 4 blocks, in which that of row r and block
    j is byte r % 32 * 16 + r / 32 * 4 + j. Tiles of the same rows follow each other; rows and
    blocks that fill a tile have 0. So scales is [512 * ceil(rows / 128) * ceil(cols / 128)].

    x is float32, float16 or bfloat16; cols is a multiple of 32. A scale is largest / 448, rounded
    up to a power of two, where largest is the largest |x| of its block and 448 the largest number
    of float8_e4m3fn: so nothing is cut off. Transformer Engine and cuBLAS round so, and torchao
    with ScaleCalculationMode.RCEIL; the example of the specification, torchao's default, rounds
    down and cuts off. The quotient is rounded to nearest, ties to even. Where an element is NaN or
    infinite, its block becomes NaN. A block of zeros has the smallest scale, 2^-127.

    Raises RuntimeError if x has another type, a wrong number of columns, or is not where the kernel
    runs, or if the result is differentiated, and ValueError if the version is unknown.

    Sources: Open Compute Project, "OCP Microscaling Formats (MX) Specification v1.0", 2023; Mishra
    et al., "Recipes for pre-training LLMs with MXFP8", 2025; NVIDIA, cuBLAS documentation, "1D
    block scaling factors layout" and "1D block quantization".
    """
    return kernel.forward(x, version_number(version, VERSIONS))


@kernel.register_fake("forward")
def _(x, version):
    return (
        x.new_empty(x.shape, dtype=torch.float8_e4m3fn),
        new_block_scales(x, 32, torch.float8_e8m0fnu),
    )


def _backward(ctx, *grads):
    no_gradient("quantize_mxfp8")


kernel.register_autograd("forward", _backward)
