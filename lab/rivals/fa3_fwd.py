"""FlashAttention 3's forward kernels as a wheel on PyPI has them, by our ops' names and arguments.

They are built without a backward pass, windows and float16.
"""

import fa3_fwd_interface
import torch

from lab.rivals.layouts import tokens_first


def attention(q, k, v, causal=False, window=None, scale=None):
    _refuse(q, window)
    q, k, v = map(tokens_first, (q, k, v))
    sees = {"causal": causal, "softmax_scale": scale}
    return tokens_first(fa3_fwd_interface.flash_attn_func(q, k, v, **sees))


def attention_varlen(q, k, v, causal=False, window=None, scale=None, **lengths):
    _refuse(q, window)
    sees = {"causal": causal, "softmax_scale": scale}
    return fa3_fwd_interface.flash_attn_varlen_func(q, k, v, **lengths, **sees)


def _refuse(q, window):
    if q.requires_grad or window is not None or q.dtype == torch.float16:
        raise NotImplementedError("fa3-fwd has no backward pass, no windows and no float16")
