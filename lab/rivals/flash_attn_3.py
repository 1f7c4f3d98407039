"""FlashAttention 3's kernels (CUDA, for Hopper), by our ops' names and arguments."""

import flash_attn_interface

from lab.rivals.layouts import tokens_first


def attention(q, k, v, causal=False, window=None, scale=None):
    q, k, v = map(tokens_first, (q, k, v))
    sees = {"causal": causal, "window_size": window or (-1, -1), "softmax_scale": scale}
    y = flash_attn_interface.flash_attn_func(q, k, v, **sees)
    return tokens_first(y[0] if isinstance(y, tuple) else y)  # some releases give statistics, too


def attention_decode(q, k, v, scale=None):
    q, k, v = map(tokens_first, (q, k, v))
    y = flash_attn_interface.flash_attn_with_kvcache(q, k, v, softmax_scale=scale, causal=True)
    return tokens_first(y[0] if isinstance(y, tuple) else y)
