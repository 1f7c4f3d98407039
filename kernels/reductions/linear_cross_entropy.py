"""linear_cross_entropy: the cross entropy of x w^T + bias, with few of these logits in memory."""

import torch
from torch import Tensor

import jitload
from kernels import (
    is_in_autocast,
    matmul,
    new_losses,
    product_dtype,
    reduction_number,
    version_number,
)

kernel = jitload.load("linear_cross_entropy")
VERSIONS = ("whole", "chunks", "rows")
CHUNKS, ROWS = 1, 2

# The products are matmul's: the binding asks this op for the newest build, whose ops it calls.
_matmul = torch.library.Library("linear_cross_entropy", "FRAGMENT")
_matmul.define("matmul() -> str")
_matmul.impl("matmul", lambda: matmul.kernel.at().build.name, "CompositeExplicitAutograd")


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

    For a mean or a sum, where a gradient is wanted, all gradients are computed with the loss. Of an
    eighth to a quarter of the rows at a time, but of 512 at least, all logits are in memory. Their
    gradients take their place, and the products of these are added to that of w, which is rounded
    once for each such chunk. Backward then has but to multiply with the gradient that arrives. If
    rows are more than a chunk has and no more than w has columns, and there is no bias, all logits
    lie in the memory that the gradient of w will have, and wait there for the gradient that
    arrives. Backward then needs room for a sixteenth of them, or somewhat more, and computes the
    gradient of w in one product and that of x in two. (Not for float64, and not where w needs
    none.) Of up to half as many more rows, or twice as many if w has 125 million elements, the
    first ones lie there while their gradients are computed, if there are classes enough; chunks of
    the others are a sixth of all rows at most, but for 512. A second backward pass through the same
    graph, or one that records a graph, computes the gradients again, in chunks of the classes.

    Elsewhere (without gradients, for reduction="none", for float16, whose small gradients would be
    lost before a scaled loss's gradient arrives, and with version="chunks") the logits of a
    sixteenth of the classes, or of 128 if that is more, are in memory at a time, and are computed
    again in the backward pass. The gradient of a row of w comes from one product and is rounded
    once; that of x is the sum of the chunks' products, in float (double for double).
    version="whole" has all logits in memory at once. But where the best version is asked for, x and
    w are of 16 bits, rows of w are contiguous and rows of both begin on multiples of 16 bytes, the
    forward pass has no logits in memory on GPUs of compute capability 9.0: three floats for each
    row and each 256 classes.

    Inside torch.autocast x, w and bias are cast to autocast's type, unless they are float64, and
    the loss is float32, as with torch.nn.functional.linear and cross_entropy.

    Logits are rounded once. Gradients have the same bits on every run, and only those that are
    asked for are computed. There is no second derivative: asking for one raises RuntimeError.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError for an unknown reduction, label_smoothing, ignore_index or version.

    Source: Wijmans et al., "Cut your losses in large-vocabulary language models", 2024.
    """
    how = reduction_number(reduction, ignore_index, label_smoothing)
    number = version_number(version, VERSIONS)
    options = (how, ignore_index, label_smoothing, check, is_in_autocast(x))
    if number == ROWS and how and isinstance(x, Tensor) and product_dtype(x) != torch.float16:
        records = torch.is_grad_enabled()
        needs = [records and isinstance(t, Tensor) and t.requires_grad for t in (x, w, bias)]
        if any(needs):
            return kernel.forward_backward(x, w, target, bias, *options, *needs)[0]
    return _forward(x, w, target, bias, *options, number)


@kernel.register_fake("infer")
def _(x, w, target, bias, reduction, ignore_index, label_smoothing, check, float_loss, version):
    return new_losses(x, target, reduction, float_loss)[0]


@kernel.register_fake("forward")
def _(x, w, target, bias, reduction, ignore_index, label_smoothing, check, float_loss, version):
    return new_losses(x, target, reduction, float_loss)


@kernel.register_fake("backward")
def _(grad, x, w, target, bias, row_max, row_sum, weight, *options):
    *_, needs_x, needs_w, needs_bias, _ = options
    return (
        x.new_empty(x.shape if needs_x else 0),
        w.new_empty(w.shape if needs_w else 0),
        w.new_empty(w.shape[:1] if needs_bias else 0),
    )


@kernel.register_fake("forward_backward")
def _(x, w, target, bias, reduction, ignore_index, label_smoothing, check, float_loss, *needs):
    shapes = (x.shape, w.shape, w.shape[:1])
    gradients = (x.new_empty(s if needed else 0) for s, needed in zip(shapes, needs, strict=True))
    return *new_losses(x, target, reduction, float_loss), *gradients


@kernel.register_fake("finish_")
def _(*given):
    return None


def _double_backward(ctx, *grads):
    raise RuntimeError(
        "linear_cross_entropy has no second derivative; where you need one, use "
        "torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, w, bias), target)"
    )


# Gradients that are there before one arrives are given once; later they are computed again.
kernel.register_autograd(
    "forward_backward",
    f"""
    x, w, bias = finish_(
        grad, x, w, target, bias, max, sum, weight, dx, dw, db, reduction, ignore_index,
        label_smoothing, needs_x, needs_w
    )
    x, w, bias = backward(
        grad, x, w, target, bias, max, sum, weight, reduction, ignore_index, label_smoothing,
        needs_x, needs_w, needs_bias, {CHUNKS}
    )
    """,
)
kernel.register_autocast("infer", policy="lower_precision_fp")
kernel.register_autocast("forward_backward", policy="lower_precision_fp")
kernel.register_autocast("forward", policy="lower_precision_fp")
# Called inside autocast, its tensors stay as they are; and its products may not cast them either.
for _backward in ("backward", "finish_"):
    kernel.register_autocast(_backward, keep=("grad", "max", "sum", "weight"))
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
