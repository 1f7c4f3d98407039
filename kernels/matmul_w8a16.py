"""matmul_w8a16: numbers of 16 bits times weights of one byte, int8 with scales."""

from torch import Tensor

import jitload
from kernels import no_gradient, version_number

kernel = jitload.load("matmul_w8a16")
VERSIONS = ("naive", "mma", "few_rows")


def matmul_w8a16(
    x: Tensor,
    w: Tensor,
    w_scale: Tensor,
    bias: Tensor | None = None,
    *,
    version: str = VERSIONS[-1],
) -> Tensor:
    """x (w * w_scale)^T + bias for x [..., cols], float16 or bfloat16, and w [units, cols], int8.

    w_scale is float32: [units, 1], or [units, ceil(cols / 128)] with a scale for each 128
    neighbours of a row. bias is [units] and of x's type, and so is the result [..., units], which
    is contiguous, rounded once, and has the same bits on every run.

    Up to 8 rows of x have a kernel that reads w once, and is bound by that; more are multiplied by
    tensor cores. Both want x and w to begin, and cols to be, on a multiple of 16: others are
    multiplied by the naive kernel, which is slow.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, or if
    the result is differentiated, and ValueError if the version is unknown.
    """
    return kernel.forward(x, w, w_scale, bias, version_number(version, VERSIONS))


@kernel.register_fake("forward")
def _(x, w, w_scale, bias, version):
    return x.new_empty((*x.shape[:-1], w.shape[0]))


def _backward(ctx, grad):
    no_gradient("matmul_w8a16")


kernel.register_autograd("forward", _backward)
