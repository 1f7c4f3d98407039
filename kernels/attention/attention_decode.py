"""attention_decode: a few queries of each sequence against its cache of keys and values."""

from torch import Tensor

import jitload
from kernels import attention_scale, check_int64, version_number

kernel = jitload.load("attention_decode")
VERSIONS = ("naive", "split", "mma")


def attention_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Tensor | None = None,
    block_table: Tensor | None = None,
    scale: float | None = None,
    window: int | None = None,
    *,
    version: str = VERSIONS[-1],
) -> Tensor:
    """softmax(q k^T * scale) v for the last tokens of each sequence, beside a cache of all tokens.

    q is [batch, heads, queries, cols]. k and v are [batch, kv_heads, tokens, cols], in any strides
    between batches, heads and tokens; or, with a block_table, pages [pages, page_size, kv_heads,
    cols]. heads is a multiple of kv_heads, of which each serves as many neighbouring heads of q.
    cols is the head size. scale is 1 / sqrt(cols) unless it is given.

    lengths: [batch], int32 or int64, the tokens of each sequence, its queries among them; without,
    each has as many as find room. Of a sequence of L tokens, query r sees those up to
    L - queries + r, and 0 is the result of one that sees none.
    block_table: [batch, max_pages], int32. Token n of a sequence is token n % page_size of the page
    that entry n // page_size of its row names. Entries that no length reaches are not read.
    window: how many tokens before its own a query sees; None for all.

    q, k and v are of one type. Inside torch.autocast they are cast to autocast's, unless they are
    float64, as for scaled_dot_product_attention: a cache of another type is cast whole, call by
    call. The result is contiguous and has q's shape and type. It has the same bits on every run.
    Lengths and pages stay on the device: where a length is not from 0 to the number of tokens, or a
    page does not exist, nothing is read there, and the results that it concerns are NaN.

    Raises RuntimeError if a tensor has another type or shape or is not where the kernel runs, or if
    the result is differentiated, and ValueError if the version is unknown or the window is not one.

    Sources: Dao, Haziza, Massa, Sizov, "Flash-Decoding", 2023; Kwon et al., "Efficient memory
    management for large language model serving with PagedAttention", 2023.
    """
    left = -1 if window is None else window
    check_int64(left, "window", " or None")
    if window is not None and window < 0:
        raise ValueError(f"window is {window}; wanted is an int of at least 0, or None")
    if scale is None:
        scale = attention_scale(q)
    number = version_number(version, VERSIONS)
    return kernel.forward(q, k, v, lengths, block_table, left, scale, number)


@kernel.register_fake("forward")
def _(q, k, v, lengths, block_table, left, scale, version):
    return q.new_empty(q.shape)


def _backward(ctx, grad):
    raise RuntimeError(
        "attention_decode has no gradient; call it under torch.no_grad(), or use "
        "kernels.attention where you need one"
    )


kernel.register_autocast("forward", policy="lower_precision_fp")
kernel.register_autograd("forward", _backward)
