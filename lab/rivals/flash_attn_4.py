"""FlashAttention 4's kernels (CuTe DSL, for Hopper and Blackwell), by our ops' names."""

from flash_attn import cute

from lab.rivals.layouts import tokens_first


def attention(q, k, v, causal=False, window=None, scale=None):
    q, k, v = map(tokens_first, (q, k, v))
    sees = {"causal": causal, "window_size": window or (None, None), "softmax_scale": scale}
    return tokens_first(cute.flash_attn_func(q, k, v, **sees)[0])  # and statistics


def attention_varlen(q, k, v, causal=False, window=None, scale=None, **lengths):
    sees = {"causal": causal, "window_size": window or (None, None), "softmax_scale": scale}
    return cute.flash_attn_varlen_func(q, k, v, **lengths, **sees)[0]
