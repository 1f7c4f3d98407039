"""matmul: y = act(scale * x w^T + bias) + residual, the linear layer with all that follows it."""

from torch import Tensor

import jitload
from kernels import no_second_derivative, version_number

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
    version: str = VERSIONS[-1],
) -> Tensor:
    """act(scale * x w^T + bias) + residual for x [..., cols] and w [units, cols].

    bias is [units], residual [..., units], and so is the result. Or w has one such matrix for each
    of x: x [..., rows, cols], w [..., units, cols]. x and w may be transposed views of what lies in
    memory, as w.mT: nothing is copied. The result is contiguous.

    act is "none", "relu", "gelu" (by the normal distribution, not its approximation), "silu"; or
    "swiglu", silu(a) * b for the two halves a and b of scale * x w^T + bias: there w has two rows
    for each unit, first all those of a, then all those of b, and bias two elements.

    All tensors are of one type: float64, float32, float16 or bfloat16. Sums are float (double for
    double), the result is rounded once. float16 and bfloat16 are multiplied by tensor cores where
    rows of x and w, or their columns, begin on multiples of 16 bytes; float32 never is.

    Gradients have the same bits on every run. Those of act "none" have gradients of every order;
    of the others a second derivative raises RuntimeError.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if act or the version is unknown.
    """
    if act not in ACTS:
        raise ValueError(f"act is {act!r}; wanted is one of {', '.join(ACTS)}")
    number = version_number(version, VERSIONS)
    return _forward(x, w, bias, residual, scale, ACTS.index(act), number)


def _units(w: Tensor, act: int) -> int:
    return w.shape[-2] // 2 if ACTS[act] == "swiglu" else w.shape[-2]


@kernel.register_fake("infer")
def _(x, w, bias, residual, scale, act, version):
    return x.new_empty((*x.shape[:-1], _units(w, act)))


@kernel.register_fake("forward")
def _(x, w, bias, residual, scale, act, version):
    z = (*x.shape[:-1], w.shape[-2]) if act else (0,)
    return x.new_empty((*x.shape[:-1], _units(w, act))), x.new_empty(z)


@kernel.register_fake("gradient_of_z")
def _(grad, z, act):
    return z.new_empty(z.shape)


@kernel.register_fake("bias_gradient")
def _(dz):
    return dz.new_empty(dz.shape[-1:])


def _product(x: Tensor, w: Tensor, ctx) -> Tensor:
    """scale * x w^T, which may be differentiated in turn."""
    return _forward(x, w, None, None, ctx.scale, 0, ctx.version)


def _rows(t: Tensor) -> Tensor:
    """[..., cols] as one matrix."""
    return t[None] if t.dim() == 1 else t.flatten(0, -2)


def _save(ctx, inputs, output):
    x, w, bias, residual, ctx.scale, ctx.act, ctx.version = inputs
    _, z = output
    ctx.mark_non_differentiable(z)
    ctx.set_materialize_grads(False)  # zeros for it would be a launch
    ctx.given = bias is not None, residual is not None
    ctx.save_for_backward(x, w, z)


def _backward(ctx, grad, grad_z):
    x, w, z = ctx.saved_tensors
    has_bias, has_residual = ctx.given
    dz = kernel.gradient_of_z(grad, z, ctx.act) if ctx.act else grad
    wants_x, wants_w, *_ = ctx.needs_input_grad
    dx = _product(dz, w.mT, ctx) if wants_x else None
    dw = None
    if wants_w:
        of_dz, of_x = map(_rows, (dz, x)) if w.dim() == 2 else (dz, x)
        dw = _product(of_dz.mT, of_x.mT, ctx)
    db = kernel.bias_gradient(dz) if has_bias else None
    return dx, dw, db, grad if has_residual else None, None, None, None


def _save_dz(ctx, inputs, output):
    (dz,) = inputs
    ctx.shape = dz.shape


def _backward_of_bias(ctx, grad):
    return grad.expand(ctx.shape)


def _double_backward(ctx, *grads):
    no_second_derivative("matmul")


_forward = kernel.register_autograd("forward", _backward, setup_context=_save, infer="infer")
kernel.register_autograd("gradient_of_z", _double_backward)
kernel.register_autograd("bias_gradient", _backward_of_bias, setup_context=_save_dz)
kernel.register_autocast("infer")
kernel.register_autocast("forward")
