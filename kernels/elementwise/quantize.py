"""quantize: numbers as floats of one byte, and the scales that belong to them."""

from torch import Tensor

import jitload
from kernels import SCALINGS, new_quantized, no_gradient, scaling_number, version_number

kernel = jitload.load("quantize")
VERSIONS = ("naive", "vector")


def quantize(
    x: Tensor,
    scaling: str = "row",
    scale: Tensor | None = None,
    *,
    version: str = VERSIONS[-1],
) -> tuple[Tensor, Tensor]:
    """(q, scale) with q * scale close to x [..., cols]: q is float8_e4m3fn, scale float32.

    scaling says which elements share a scale, and so what shape the scales have:

        "row"      those of a row: [..., 1]
        "1x128"    128 neighbours of a row: [..., ceil(cols / 128)]
        "128x128"  128 neighbours in each of 128 rows, for a matrix x [rows, cols]:
                   [ceil(rows / 128), ceil(cols / 128)]
        "tensor"   all; that scale is given, as a tensor of one element

    x is float32, float16 or bfloat16. A scale is largest / 448, where largest is the largest |x| of
    its elements, or 1e-12 if they are all smaller, and 448 the largest number of float8_e4m3fn. q
    is x / scale, in float32, cut off at -448 and 448 and rounded to nearest, ties to even; bit for
    bit PyTorch's (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn). Where an element is
    NaN, so are all that share its scale; where one is infinite, it becomes NaN and they become 0.

    For scaling "tensor" people take a scale from earlier batches, or that of this one, which is
    torch.linalg.vector_norm(x, torch.inf).float() / 448: x is read once more for that.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, if a
    scale is missing or superfluous, or if the result is differentiated; and ValueError if scaling
    or the version is unknown.

    Sources: Micikevicius et al., "FP8 formats for deep learning", 2022; for the blocks DeepSeek-AI,
    "DeepSeek-V3 technical report", 2024.
    """
    number = version_number(version, VERSIONS)
    q, scales = kernel.forward(x, scale, scaling_number(scaling), number)
    return q, scales if scale is None else scale


@kernel.register_fake("forward")
def _(x, scale, scaling, version):
    if SCALINGS[scaling] != "tensor":
        return new_quantized(x, scaling)
    q, scales = new_quantized(x, SCALINGS.index("row"))
    return q, scales.new_empty(0)  # none is made


def _backward(ctx, *grads):
    no_gradient("quantize")


kernel.register_autograd("forward", _backward)
