"""rope: q, k and v of a fused projection, split and, q and k, rotated by their positions."""

import torch
from torch import Tensor

import jitload
from kernels import version_number

kernel = jitload.load("rope")
VERSIONS = ("naive", "vector")


def rope(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    heads: int = 2,
    kv_heads: int = 1,
    interleaved: bool = False,
    *,
    version: str = VERSIONS[-1],
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotary position embedding of q and k, which with v come out of one projection.

    qkv       [..., tokens, (heads + 2 * kv_heads) * cols]: of each token all heads of q, then those
              of k, then those of v; cols, the head size, is even
    cos, sin  [tokens, cols / 2] for all batches, with leading dimensions of 1 or without, or
              [..., tokens, cols / 2]: of the angle of each token and pair. Another first position
              is another part of the tables.
    interleaved  pair i of a head is elements 2 * i and 2 * i + 1 (GPT-J), else i and cols / 2 + i
              (Llama, GPT-NeoX: "rotate_half")

    Returns q [..., heads, tokens, cols], k and v [..., kv_heads, tokens, cols] as `attention` takes
    them: each is a transposed view of contiguous [..., tokens, heads, cols]. A pair (a, b) becomes
    (a * cos - b * sin, b * cos + a * sin). Gradients are read as they lie, if neighbours in a row
    lie side by side.

    All tensors are of one type: float64, float32, float16 or bfloat16. Results are rounded once.
    Gradients of every order are right, those of the tables too, and have the same bits on every
    run.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if the version is unknown.

    Source: Su, Lu, Pan, Murtadha, Wen, Liu, "RoFormer: Enhanced Transformer with Rotary Position
    Embedding", 2021.
    """
    return kernel.forward(
        qkv, cos, sin, heads, kv_heads, interleaved, version_number(version, VERSIONS)
    )


@kernel.register_fake("forward")
def _(qkv, cos, sin, heads, kv_heads, interleaved, version):
    leading, tokens = qkv.shape[:-2], qkv.shape[-2:-1]
    order = list(range(qkv.dim() + 1))
    if tokens:
        order[-3:-1] = reversed(order[-3:-1])
    return tuple(
        torch.empty_permuted(
            (*leading, count, *tokens, 2 * cos.shape[-1]), order, dtype=qkv.dtype, device=qkv.device
        )
        for count in (heads, kv_heads, kv_heads)
    )


@kernel.register_fake("backward")
def _(dq, dk, dv, cos, sin, heads, kv_heads, interleaved, version):
    leading, tokens = (dq.shape[:-3], dq.shape[-2:-1]) if dq.dim() > 2 else ((), ())
    return dq.new_empty((*leading, *tokens, (heads + 2 * kv_heads) * dq.shape[-1]))


@kernel.register_fake("table_gradients")
def _(dq, dk, qkv, cos, heads, kv_heads, interleaved):
    return cos.new_empty(cos.shape), cos.new_empty(cos.shape)


def _save_table_gradients(ctx, inputs, output):
    dq, dk, qkv, _, *ctx.options = inputs
    ctx.save_for_backward(dq, dk, qkv)


def _backward_of_table_gradients(ctx, of_cos, of_sin):
    """dcos and dsin are linear in dq and dk, and in qkv, where what arrives stands for cos, sin."""
    dq, dk, qkv = ctx.saved_tensors
    options = *ctx.options, len(VERSIONS) - 1
    q, k, v = kernel.forward(qkv, of_cos, of_sin, *options)
    d_qkv = kernel.backward(dq, dk, torch.zeros_like(v), of_cos, of_sin, *options)
    return q, k, d_qkv, None, None, None, None


kernel.register_autocast("forward")
kernel.register_autograd(
    "forward",
    """
    qkv = backward(grad_q, grad_k, grad_v, cos, sin, heads, kv_heads, interleaved, version)
    cos, sin = table_gradients(grad_q, grad_k, qkv, cos, heads, kv_heads, interleaved)
    """,
)
kernel.register_autograd(  # of a rotation backwards: a rotation forwards
    "backward",
    """
    dq, dk, dv = forward(grad_dqkv, cos, sin, heads, kv_heads, interleaved, version)
    cos, sin = table_gradients(dq, dk, grad_dqkv, cos, heads, kv_heads, interleaved)
    """,
)
kernel.register_autograd(
    "table_gradients", _backward_of_table_gradients, setup_context=_save_table_gradients
)
