"""linear_cross_entropy: the cross entropy of x w^T + bias, with few of these logits in memory."""

import torch
from torch import Tensor

import jitload
from kernels import matmul, new_losses, reduction_number, version_number

kernel = jitload.load("linear_cross_entropy")
VERSIONS = ("whole", "chunks")

# The products are matmul's: the binding calls these two ops, which call the newest build of matmul.
_matmul = torch.library.Library("linear_cross_entropy", "FRAGMENT")
_matmul.define("product(Tensor x, Tensor w, Tensor? bias) -> Tensor")
_matmul.define(
    "gradients(Tensor grad, Tensor x, Tensor w, bool needs_x, bool needs_w, bool needs_bias)"
    " -> (Tensor, Tensor, Tensor)"
)


def _product(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    best = len(matmul.VERSIONS) - 1
    return matmul.kernel.infer(x, w, bias, None, 1.0, matmul.ACTS.index("none"), False, best)


def _gradients(grad: Tensor, x: Tensor, w: Tensor, *needs: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Of x, w and bias."""
    best = len(matmul.VERSIONS) - 1
    z = x.new_empty(0)
    return matmul.kernel.backward(
        grad, x, w, z, 1.0, matmul.ACTS.index("none"), *needs, False, best
    )


_matmul.impl("product", _product, "CompositeExplicitAutograd")
_matmul.impl("gradients", _gradients, "CompositeExplicitAutograd")


def linear_cross_entropy(
    x: Tensor,
    w: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    *,
    check: bool = True,
    version: str = VERSIONS[-1],
) -> Tensor:
    """cross_entropy of the logits x w^T + bias, for x [..., cols] and w [classes, cols].

    x, w, bias  float64, float32, float16 or bfloat16, all of one type; bias is [classes]
    target      int64 [...]: for each row of x a class from 0 to classes - 1, or ignore_index

    reduction, ignore_index, label_smoothing and check are those of cross_entropy, and so are the
    result and what a target out of range does.

    The logits of a sixteenth of the classes, or of 128 if that is more, are in memory at a time.
    Each is rounded once, and is computed again in the backward pass, where its gradient takes its
    place. The gradient of a row of w comes from one product and is rounded once; that of x is the
    sum of the chunks' products, in float (double for double). Gradients have the same bits on every
    run, and only those that are asked for are computed. There is no second derivative: asking for
    one raises RuntimeError. version="whole" has all logits in memory at once.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError for a reduction, a label_smoothing, an ignore_index or a version that there is not.

    Source: Wijmans et al., "Cut your losses in large-vocabulary language models", 2024.
    """
    how = reduction_number(reduction, ignore_index, label_smoothing)
    number = version_number(version, VERSIONS)
    return _forward(x, w, target, bias, how, ignore_index, label_smoothing, check, number)


@kernel.register_fake("infer")
def _(x, w, target, bias, reduction, ignore_index, label_smoothing, check, version):
    return new_losses(x, target, reduction)[0]


@kernel.register_fake("forward")
def _(x, w, target, bias, reduction, ignore_index, label_smoothing, check, version):
    return new_losses(x, target, reduction)


@kernel.register_fake("backward")
def _(grad, x, w, target, bias, row_max, row_sum, weight, *options):
    *_, needs_x, needs_w, needs_bias, _ = options
    return (
        x.new_empty(x.shape if needs_x else 0),
        w.new_empty(w.shape if needs_w else 0),
        w.new_empty(w.shape[:1] if needs_bias else 0),
    )


def _double_backward(ctx, *grads):
    raise RuntimeError(
        "linear_cross_entropy has no second derivative; where you need one, use "
        "torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, w, bias), target)"
    )


kernel.register_autocast("infer")
kernel.register_autocast("forward")
_forward = kernel.register_autograd(
    "forward",
    """
    x, w, bias = backward(
        grad, x, w, target, bias, max, sum, weight, reduction, ignore_index, label_smoothing,
        needs_x, needs_w, needs_bias, version
    )
    """,
    infer="infer",
)
kernel.register_autograd("backward", _double_backward)
