"""grouped_matmul: y = x w^T, the rows of each expert by its own w (mixture of experts)."""

from torch import Tensor

import jitload
from kernels import no_second_derivative, version_number

kernel = jitload.load("grouped_matmul")
VERSIONS = ("naive", "tiles", "registers", "mma", "wgmma")
ACTS = ("none", "relu", "gelu", "silu", "swiglu")  # by the numbers of matmul.h


def grouped_matmul(
    x: Tensor, w: Tensor, offsets: Tensor, act: str = "none", *, version: str = VERSIONS[-1]
) -> Tensor:
    """act(x w[e]^T) for the rows of each expert e: x [rows, cols], w [experts, units, cols].

    The rows of x are sorted by expert. offsets [experts], int32, says where those of each expert
    end, as for torch._grouped_mm: expert e has those from offsets[e - 1], or 0, to offsets[e]. It
    may have none. Rows of x from the last offset on belong to no expert, and their result is 0: so
    a batch may be padded to a fixed number of rows. The result is [rows, units] and contiguous.

    act is "none", "relu", "gelu", "silu" or "swiglu", as in matmul: for "swiglu" each w[e] has two
    rows for each unit, first all those of the half that silu takes.

    The offsets stay on the device, and nothing waits for them: a CUDA graph replays with those that
    are there by then. Where they decrease, are negative or go beyond the rows, all results are NaN,
    and nothing is read or written by them.

    x and w are of one type: float64, float32, float16 or bfloat16. Sums are float (double for
    double), the result is rounded once and has the same bits on every run. All types but float32
    are multiplied by tensor cores where rows of x, and rows or columns of w, begin on multiples of
    16 bytes. w may be a transposed view, as w.mT; other views are copied.

    Inside torch.autocast x and w are cast to autocast's type, unless they are float64.

    The gradient of x is such a product, too, with 0 for rows of no expert; that of w is a product
    of the rows of each expert, 0 where there are none. A second derivative raises RuntimeError.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if act or the version is unknown.
    """
    if act not in ACTS:
        raise ValueError(f"act is {act!r}; wanted is one of {', '.join(ACTS)}")
    return _forward(x, w, offsets, ACTS.index(act), version_number(version, VERSIONS))


def _result(x: Tensor, w: Tensor, act: int) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[1] // (2 if ACTS[act] == "swiglu" else 1)))


@kernel.register_fake("infer")
def _(x, w, offsets, act, version):
    return _result(x, w, act)


@kernel.register_fake("forward")
def _(x, w, offsets, act, version):
    return _result(x, w, act), x.new_empty((x.shape[0], w.shape[1]) if act else (0,))


@kernel.register_fake("backward")
def _(grad, x, w, z, offsets, act, needs_x, needs_w, version):
    return x.new_empty(x.shape if needs_x else 0), w.new_empty(w.shape if needs_w else 0)


def _double_backward(ctx, of_dx, of_dw):
    no_second_derivative("grouped_matmul")


_forward = kernel.register_autograd(
    "forward",
    "x, w = backward(grad, x, w, z, offsets, act, needs_x, needs_w, version)",
    infer="infer",
)
kernel.register_autograd("backward", _double_backward)
kernel.register_autocast("infer", policy="lower_precision_fp")
kernel.register_autocast("forward", policy="lower_precision_fp")
