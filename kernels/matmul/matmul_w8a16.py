"""matmul_w8a16: numbers of 16 bits times weights of one byte, int8 with scales."""

import torch
from torch import Tensor

import jitload
from kernels import matmul, no_gradient, version_number

kernel = jitload.load("matmul_w8a16")
VERSIONS = ("naive", "mma", "few_rows", "wgmma")

# Many rows are multiplied by matmul: the binding calls this op, which calls its newest build.
_matmul = torch.library.Library("matmul_w8a16", "FRAGMENT")
_matmul.define("product(Tensor x, Tensor w, Tensor? bias) -> Tensor")


def _product(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    best = len(matmul.VERSIONS) - 1
    return matmul.kernel.infer(x, w, bias, None, 1.0, matmul.ACTS.index("none"), False, best)


_matmul.impl("product", _product, "CompositeExplicitAutograd")


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

    Up to 64 rows of x are multiplied as the weights are read, with their values exact, and more
    where that is faster. Where x or w do not begin, or cols is not, on a multiple of 16 elements,
    both are copied first. Otherwise each weight is multiplied by its scale first and rounded to
    x's type, as matmul takes it: into memory of 2 bytes for each. All such memory is free again
    after the call.

    Inside torch.autocast x and bias are cast to autocast's type, as for torch.nn.functional.linear.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, or if
    the result is differentiated, and ValueError if the version is unknown.
    """
    return kernel.forward(x, w, w_scale, bias, version_number(version, VERSIONS))


@kernel.register_fake("forward")
def _(x, w, w_scale, bias, version):
    return x.new_empty((*x.shape[:-1], w.shape[0]))


def _backward(ctx, grad):
    no_gradient("matmul_w8a16")


kernel.register_autocast("forward", keep=("w_scale",), policy="lower_precision_fp")
kernel.register_autograd("forward", _backward)
