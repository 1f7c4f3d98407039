"""flash-attn's kernels, FlashAttention 2 (CUDA), by our ops' names and arguments."""

from flash_attn import flash_attn_interface

from lab.rivals.layouts import tokens_first


def attention(q, k, v, causal=False, window=None, scale=None):
    q, k, v = map(tokens_first, (q, k, v))
    sees = {"causal": causal, "window_size": window or (-1, -1), "softmax_scale": scale}
    return tokens_first(flash_attn_interface.flash_attn_func(q, k, v, **sees))


def attention_decode(q, k, v, scale=None):
    q, k, v = map(tokens_first, (q, k, v))
    y = flash_attn_interface.flash_attn_with_kvcache(q, k, v, softmax_scale=scale, causal=True)
    return tokens_first(y)


def attention_varlen(q, k, v, causal=False, window=None, scale=None, **lengths):
    sees = {"causal": causal, "window_size": window or (-1, -1), "softmax_scale": scale}
    return flash_attn_interface.flash_attn_varlen_func(q, k, v, **lengths, **sees)
