"""attention: y = softmax(q k^T * scale) v, in one pass that never stores the scores."""

import torch
from torch import Tensor

import jitload
from kernels import attention_limits, attention_scale, version_number

kernel = jitload.load("attention")
VERSIONS = ("naive", "online", "mma", "wgmma", "overlap")


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    *,
    version: str = VERSIONS[-1],
) -> Tensor:
    """softmax(q k^T * scale) v for q [..., heads, rows, cols] and k, v [..., heads, keys, cols].

    q has any number of leading dimensions, none of which it needs. k and v may have fewer, and then
    serve all; and fewer heads, of which each serves as many neighbouring heads of q (grouped
    heads). cols is the head size. scale is 1 / sqrt(cols) unless it is given.

    causal: row r sees keys up to r + keys - rows, so that the last row sees the last key, as in
    flash-attn since 2.1. window: how many keys a row sees to the left and to the right of that one,
    -1 for all; causal is a window of (-1, 0), and with one the right side is 0. A row that sees no
    key gives 0, and has no gradient. There are no other masks, and no dropout. For sequences of
    different lengths: attention_varlen.

    All tensors are of one type: float64, float32, float16 or bfloat16. Inside torch.autocast they
    are cast to autocast's, unless they are float64, as for scaled_dot_product_attention. Sums are
    floats (doubles for double). Any strides between batches, heads and rows are taken as they are:
    a transposed view of [batch, tokens, heads, cols] is not copied. The result y has q's shape and
    type and lies in memory as q does: dense, its dimensions in the order of q's strides, the last
    innermost. So do the gradients, dq as q, dk as k and dv as v. (Of more than four dimensions they
    are contiguous.)
    What arrives as y's gradient is read as it lies, too, if neighbours in a row lie side by side.
    Results and gradients have the same bits on every run: what is an option elsewhere
    (deterministic=True in flash-attn) always holds. There is no second derivative: asking for one
    raises RuntimeError.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if the version is unknown, the window is not one, or causal is no bool.

    Sources: Dao, Fu, Ermon, Rudra, Re, "FlashAttention", 2022; Dao, "FlashAttention-2", 2023; Shah,
    Bikshandi, Zhang, Thakkar, Ramani, Dao, "FlashAttention-3", 2024.
    """
    left, right = attention_limits(causal, window)
    if scale is None:
        scale = attention_scale(q)
    return _forward(q, k, v, left, right, scale, version_number(version, VERSIONS))


def empty_lying_as(t: Tensor) -> Tensor:
    """What new_lying_as of attention.cpp makes: for the fakes, which tell strides, too."""
    order = list(range(t.dim()))
    if t.dim() <= 4:
        large = [i for i in order[:-1] if t.shape[i] > 1]  # others may have any stride
        by_stride = sorted(large, key=t.stride, reverse=True)
        for place, dim in zip(large, by_stride, strict=True):
            order[place] = dim
    return torch.empty_permuted(t.shape, order, dtype=t.dtype, device=t.device)


def _new_stats(q: Tensor) -> Tensor:
    return q.new_empty((*q.shape[:-1], 2), dtype=torch.promote_types(q.dtype, torch.float32))


@kernel.register_fake("infer")
def _(q, k, v, left, right, scale, version):
    return empty_lying_as(q)


@kernel.register_fake("forward")
def _(q, k, v, left, right, scale, version):
    return empty_lying_as(q), _new_stats(q)


@kernel.register_fake("backward")
def _(grad, q, k, v, y, stats, left, right, scale, version):
    return empty_lying_as(q), empty_lying_as(k), empty_lying_as(v)


def _double_backward(ctx, *grads):
    raise RuntimeError(
        "attention has no second derivative; where you need one, use "
        "torch.nn.functional.scaled_dot_product_attention in float32"
    )


kernel.register_autocast("infer", policy="lower_precision_fp")
kernel.register_autocast("forward", policy="lower_precision_fp")
_forward = kernel.register_autograd(
    "forward",
    "q, k, v = backward(grad, q, k, v, y, stats, left, right, scale, version)",
    infer="infer",
)
kernel.register_autograd("backward", _double_backward)
