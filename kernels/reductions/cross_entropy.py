"""cross_entropy: log(sum of e^x) - x[target], row by row."""

from torch import Tensor

import jitload
from kernels import is_in_autocast, new_losses, reduction_number, version_number

kernel = jitload.load("cross_entropy")
VERSIONS = ("naive", "online", "vector", "warp")


def cross_entropy(
    x: Tensor,
    target: Tensor,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    *,
    check: bool = True,
    version: str = VERSIONS[-1],
) -> Tensor:
    """The negative log-likelihood of the class target[...] under the logits x [..., cols].

    x         float64, float32, float16 or bfloat16
    target    int64 [...]: for each row of x a class from 0 to cols - 1, or ignore_index
    reduction "none": a loss for each row, [...]; "sum": their sum, []; "mean": the sum divided by
              the rows that are not ignored, [], NaN if there are none
    ignore_index     a row with this target has loss 0 and gradient 0; as in PyTorch a gradient of
              NaN, if x holds a NaN or +infinity there, or nothing but -infinity
    label_smoothing  in [0, 1]: this much of the wanted probability is spread over all classes
    check     raise if a target is out of range, see below

    The loss has x's type and is rounded once; its parts are float (double for double). Inside
    torch.autocast it is float32 unless x is float64, as torch.nn.functional.cross_entropy's is,
    but x is not cast for that: what is computed is float anyway. Gradients have x's type and the
    same bits on every run. There is no second derivative: asking for one raises RuntimeError.

    A target that is no class is never read with: the loss becomes NaN, and so does the gradient in
    that row. With check=True, it raises RuntimeError instead, which names the first such target.
    On a GPU this call then returns when the targets have been looked at: the host waits for what
    was on its way to the GPU before, but not for the loss. Where that wait costs too much, pass
    check=False. While a CUDA graph is captured nothing is checked, nor when it is replayed; inside
    torch.compile the check stays, unless it captures CUDA graphs.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError for an unknown reduction, label_smoothing, ignore_index or version.

    Source: Szegedy et al., "Rethinking the Inception Architecture", 2016 (label smoothing).
    """
    how = reduction_number(reduction, ignore_index, label_smoothing)
    number = version_number(version, VERSIONS)
    options = (how, ignore_index, label_smoothing, check, is_in_autocast(x))
    return _forward(x, target, *options, number)


@kernel.register_fake("infer")
def _(x, target, reduction, ignore_index, label_smoothing, check, float_loss, version):
    return new_losses(x, target, reduction, float_loss)[0]


@kernel.register_fake("forward")
def _(x, target, reduction, ignore_index, label_smoothing, check, float_loss, version):
    return new_losses(x, target, reduction, float_loss)


@kernel.register_fake("backward")
def _(grad, x, target, row_max, row_sum, weight, reduction, ignore_index, label_smoothing, version):
    return x.new_empty(x.shape)


def _double_backward(ctx, *grads):
    raise RuntimeError(
        "cross_entropy has no second derivative; where you need one, use "
        "torch.nn.functional.cross_entropy(x, target)"
    )


kernel.register_autocast("infer")
kernel.register_autocast("forward")
_forward = kernel.register_autograd(
    "forward",
    """
    x = backward(
        grad, x, target, max, sum, weight, reduction, ignore_index, label_smoothing, version
    )
    """,
    infer="infer",
)
kernel.register_autograd("backward", _double_backward)
