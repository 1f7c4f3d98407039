"""Converts between our layout of heads and that of flash-attn."""

from torch import Tensor


def tokens_first(x: Tensor) -> Tensor:
    """A view of [batch, heads, tokens, cols] as [batch, tokens, heads, cols], and back."""
    return x.transpose(1, 2)
