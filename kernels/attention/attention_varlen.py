"""attention_varlen: attention of sequences of different lengths, packed one after the other."""

import torch
from torch import Tensor

import jitload
from kernels import attention_limits, attention_scale, check_int64, version_number

kernel = jitload.load("attention_varlen")
VERSIONS = ("naive", "online", "mma", "wgmma", "overlap")


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    *,
    version: str = VERSIONS[-1],
) -> Tensor:
    """softmax(q k^T * scale) v for each of many sequences, which are packed one after the other.

    q is [tokens, heads, cols], and k and v are [kv_tokens, kv_heads, cols], as for flash-attn's
    flash_attn_varlen_func and torch.nn.attention.varlen. heads is a multiple of kv_heads, of which
    each serves as many neighbouring heads of q. Any strides between tokens and heads are taken as
    they are. The result is contiguous and has q's shape and type.

    cu_seqlens_q, cu_seqlens_k: [sequences + 1], int32 or int64. Sequence i has the rows of q from
    cu_seqlens_q[i] on and before cu_seqlens_q[i + 1], and its keys alike; it may have none. It sees
    no other sequence, whatever that holds. Rows of q before the first and after the last sequence
    have 0 for a result, and such rows of q, k and v have 0 for a gradient: so a batch may be padded
    to a fixed number of tokens.
    max_seqlen_q, max_seqlen_k: the most rows and keys that a sequence has; None: as many as there
    are. No result depends on them, but without tensor cores max_seqlen_k bounds the memory that
    backward takes.

    The lengths stay on the device, and nothing waits for them: a CUDA graph replays with those that
    are there by then. Where they are wrong, all results are NaN, and nothing is read or written by
    them. They are wrong if cu_seqlens decrease anywhere, are negative, go beyond the tokens, or if
    a sequence is longer than max_seqlen_q or max_seqlen_k.

    causal, window, scale, types and versions are those of attention, for each sequence by itself:
    its row r sees keys up to r + keys - rows. Results and gradients have the same bits on every
    run, whatever stands beside a sequence.
    There is no second derivative: asking for one raises RuntimeError.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, and
    ValueError if the version is unknown, or the window or the most rows or keys are none.

    Sources: those of attention.
    """
    left, right = attention_limits(causal, window)
    if scale is None:
        scale = attention_scale(q)
    return _forward(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        _most(max_seqlen_q, "max_seqlen_q"),
        _most(max_seqlen_k, "max_seqlen_k"),
        left,
        right,
        scale,
        version_number(version, VERSIONS),
    )


def _most(tokens: int | None, name: str) -> int:
    """-1 for None."""
    if tokens is None:
        return -1
    check_int64(tokens, name, " or None")
    if tokens < 0:
        raise ValueError(f"{name} is {tokens}; wanted is an int of at least 0, or None")
    return tokens


@kernel.register_fake("infer")
def _(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, left, right, scale, version):
    return q.new_empty(q.shape)


@kernel.register_fake("forward")
def _(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, left, right, scale, version):
    of_sums = torch.promote_types(q.dtype, torch.float32)
    return q.new_empty(q.shape), q.new_empty((*q.shape[:-1], 2), dtype=of_sums)


@kernel.register_fake("backward")
def _(grad, q, k, v, y, stats, *others):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _double_backward(ctx, *grads):
    raise RuntimeError(
        "attention_varlen has no second derivative; where you need one, use "
        "torch.nn.functional.scaled_dot_product_attention in float32 for each sequence"
    )


kernel.register_autocast("infer", policy="lower_precision_fp")
kernel.register_autocast("forward", policy="lower_precision_fp")
_forward = kernel.register_autograd(
    "forward",
    """
    q, k, v = backward(
        grad, q, k, v, y, stats, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        left, right, scale, version
    )
    """,
    infer="infer",
)
kernel.register_autograd("backward", _double_backward)
