"""matmul: y = act(scale * x w^T + bias) + residual, the linear layer with all that follows it."""

from torch import Tensor

import jitload
from kernels import is_in_autocast, no_second_derivative, product_dtype, version_number

kernel = jitload.load("matmul")
VERSIONS = (
    "naive",
    "tiles",
    "registers",
    "mma",
    "wgmma",
    "specialized",
    "cluster",
    "stores",
)
ACTS = ("none", "relu", "gelu", "silu", "swiglu")  # by the numbers of matmul.h


def matmul(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    act: str = "none",
    scale: float = 1.0,
    *,
    tf32: bool = False,
    version: str = VERSIONS[-1],
) -> Tensor:
    """act(scale * x w^T + bias) + residual for x [..., cols] and w [units, cols].

    bias is [units], residual [..., units], and so is the result. Or w has one such matrix for each
    of x: x [..., rows, cols], w [..., units, cols]. x and w may be transposed views of what lies in
    memory, as w.mT. The result is contiguous.

    act is "none", "relu", "gelu" (by the normal distribution, not its approximation), "silu"; or
    "swiglu", silu(a) * b for the two halves a and b of scale * x w^T + bias: there w has two rows
    for each unit, first all those of a, then all those of b, and bias two elements.

    All tensors are of one type: float64, float32, float16 or bfloat16. Sums are float (double for
    double), the result is rounded once. All types but float32 are multiplied by tensor cores
    (float64 where y has more tiles than the GPU has multiprocessors), which read rows of x and w,
    or their columns, that begin on multiples of 16 bytes. An x or w whose rows begin elsewhere, as
    those of an odd number of elements do, is copied for that, into memory of its own size that is
    free again after the call; no other is copied, nor are a large w and up to 16 rows of x.

    tf32: float32 may be rounded to 10 bits behind the point, to the nearest, and then is multiplied
    by tensor cores, too, in every version from "mma" on; gradients likewise. On GPUs of compute
    capability 9.0 the last version may copy w for that, and an x by column, into memory that is
    free again after the call. Products of other types, and where tensor cores cannot read x and w,
    are as they are without.

    Inside torch.autocast x, w and bias are cast to autocast's type, unless they are float64, as for
    torch.nn.functional.linear. A residual is not: one of another type is added after the product,
    as PyTorch adds it, and the result has the wider type of the two.

    Gradients have the same bits on every run. Those of act "none" have gradients of every order;
    of the others a second derivative raises RuntimeError.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if act or the version is unknown.
    """
    if act not in ACTS:
        raise ValueError(f"act is {act!r}; wanted is one of {', '.join(ACTS)}")
    options = scale, ACTS.index(act), tf32, version_number(version, VERSIONS)
    if not _is_added_after(residual, x):
        return _forward(x, w, bias, residual, *options)
    y = _forward(x, w, bias, None, *options)
    if residual.shape != y.shape:
        raise RuntimeError(
            f"residual has shape {tuple(residual.shape)}; wanted is {tuple(y.shape)}, as the result"
            " has"
        )
    return y + residual


def _is_added_after(residual: Tensor | None, x: Tensor) -> bool:
    """Whether autocast gives the product another type than the residual has."""
    if not isinstance(residual, Tensor) or not is_in_autocast(x):
        return False
    return residual.is_floating_point() and residual.dtype != product_dtype(x)


def _units(w: Tensor, act: int) -> int:
    return w.shape[-2] // 2 if ACTS[act] == "swiglu" else w.shape[-2]


@kernel.register_fake("infer")
def _(x, w, bias, residual, scale, act, tf32, version):
    return x.new_empty((*x.shape[:-1], _units(w, act)))


@kernel.register_fake("forward")
def _(x, w, bias, residual, scale, act, tf32, version):
    z = (*x.shape[:-1], w.shape[-2]) if act else (0,)
    return x.new_empty((*x.shape[:-1], _units(w, act))), x.new_empty(z)


@kernel.register_fake("backward")
def _(grad, x, w, z, scale, act, needs_x, needs_w, needs_bias, tf32, version):
    return (
        x.new_empty(x.shape if needs_x else 0),
        w.new_empty(w.shape if needs_w else 0),
        w.new_empty(w.shape[-2] if needs_bias else 0),
    )


def _save_backward(ctx, inputs, output):
    grad, x, w, _, ctx.scale, ctx.act, *ctx.needed, ctx.tf32, ctx.version = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(grad, x, w)


def _double_backward(ctx, of_dx, of_dw, of_dbias):
    """Of dx = scale * grad w, dw = scale * grad^T x and dbias, the sum of grad, where act is none.

    Each is linear in two of the three; the products may be differentiated in turn.
    """
    if ctx.act:
        no_second_derivative("matmul")
    grad, x, w = ctx.saved_tensors
    rows = _rows if w.dim() == 2 else lambda t: t
    of_grad, of_x, of_w = [], None, None

    def product(a: Tensor, b: Tensor) -> Tensor:
        return _forward(a, b, None, None, ctx.scale, 0, ctx.tf32, ctx.version)

    needs_dx, needs_dw, needs_dbias = ctx.needed
    if needs_dx and of_dx is not None:
        of_grad.append(product(of_dx, w))
        of_w = product(rows(grad).mT, rows(of_dx).mT)
    if needs_dw and of_dw is not None:
        of_grad.append(product(x, of_dw))
        of_x = product(grad, of_dw.mT)
    if needs_dbias and of_dbias is not None:
        of_grad.append(of_dbias.expand_as(grad))
    return sum(of_grad) if of_grad else None, of_x, of_w, *(None,) * 8


def _rows(t: Tensor) -> Tensor:
    """[..., cols] as one matrix."""
    return t[None] if t.dim() == 1 else t.flatten(0, -2)


_forward = kernel.register_autograd(
    "forward",
    """
    x, w, bias = backward(
        grad, x, w, z, scale, act, needs_x, needs_w, needs_bias, tf32, version
    )
    residual = grad
    """,
    infer="infer",
)
kernel.register_autograd("backward", _double_backward, setup_context=_save_backward)
kernel.register_autocast("infer", keep=("residual",), policy="lower_precision_fp")
kernel.register_autocast("forward", keep=("residual",), policy="lower_precision_fp")
