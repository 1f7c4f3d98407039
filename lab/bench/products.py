"""The matrix products and attention that `make bench` measures, in sizes of real models.

Most are limited by arithmetic; the rest moves the weights or the cache of such a model. Rows and
cols are those of x, q or the cache; all other sizes are in the text of the options.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from lab.bench.prepared_products import (
    SCALES,
    few_rows_of_bytes,
    grouped,
    loss,
    losses,
    matmul_block_scaled,
    matmul_fp8,
    norms_fp8,
    packed,
    packed_sequences,
    swiglus_fp8,
)
from lab.bench.product import OPS, Product

NAMES = [*OPS]

CUBES = (4096, 6144, 8192)
MODELS = (  # rows, units and cols in Llama 3 8B: of a few tokens, of a prompt, of a batch
    (128, 6144, 4096, "q, k and v"),
    (256, 28672, 4096, "gate and up"),
    (512, 4096, 4096, "output of attention"),
    (512, 14336, 4096, "gate"),
    (1024, 4096, 14336, "down"),
    (2048, 28672, 4096, "gate and up"),
    (4096, 14336, 4096, "gate"),
    (4096, 4096, 14336, "down"),
    (8192, 6144, 4096, "q, k and v"),
    (8192, 128256, 4096, "vocabulary"),
    (16384, 4096, 4096, "output of attention"),
    (16384, 14336, 4096, "gate"),
)
BETWEEN = (  # rows that tiles of 128 do not fill evenly, or that give few tiles
    (192, 6144, 4096, "q, k and v"),
    (256, 4096, 14336, "down"),
    (384, 4096, 4096, "output of attention"),
)
FEW_ROWS = (1, 16, 63)
WEIGHTS = ((4096, 4096), (28672, 4096), (4096, 14336))
FUSED = (  # the epilogues
    {"bias": True},
    {"bias": True, "act": "relu"},
    {"bias": True, "act": "gelu"},
    {"bias": True, "act": "silu"},
    {"bias": True, "act": "swiglu"},
    {"residual": True},
    {"bias": True, "residual": True},
)
FUSED_CUBES = (4096, 8192)
TOKENS = tuple(512 << i for i in range(6))  # 512 to 16384
ALL_TOKENS = 16384  # total of all sequences of a batch
WIDTH = 2048  # total width of all heads
HEAD_SIZES = (64, 128)
CACHES = ((64, 1024), (16, 8192), (4, 32768))  # sequences, and the tokens of each
HEADS, KV_HEADS = 32, 8  # of Llama 3 8B


def products(names: list[str], dtype: torch.dtype = torch.bfloat16) -> Iterator[Product]:
    """All products that a run measures for these ops."""
    makers = {
        "matmul": matmuls,
        "attention": attentions,
        "rope": ropes,
        "attention_decode": decodes,
        "attention_varlen": packed,
        "matmul_fp8": matmuls_fp8,
        "matmul_w8a16": few_rows_of_bytes,
        "matmul_block_scaled": matmuls_block_scaled,
        "grouped_matmul": grouped,
        "linear_cross_entropy": losses,
        "rms_norm_fp8": norms_fp8,
        "swiglu_fp8": swiglus_fp8,
    }
    for name in NAMES:
        if name in names:
            yield from makers[name](dtype)


def host_products(names: list[str], dtype: torch.dtype = torch.bfloat16) -> Iterator[Product]:
    """A call with little work for each op, without and with gradients, for the host's time."""
    for direction in ("forward", "both"):
        small = (
            matmul(dtype, "host", 64, 128, 128, bias=True),
            attention(dtype, direction, 1, 2, 64, 64, causal=True),
            packed_sequences(dtype, direction, 32, 2, 64, width=128),
            rope(dtype, direction, 1, 64, 64, heads=2, kv_heads=1),
            loss(dtype, direction, 64, 128, 256),
        )
        gradients = {"matmul": ("x", "w", "bias")}
        for it in small:
            if it.name in names:
                yield replace(
                    it,
                    kind="host",
                    direction=direction,
                    gradients=gradients.get(it.name, it.gradients),
                    cold=False,
                    on_host=True,
                )


def matmuls(dtype: torch.dtype) -> Iterator[Product]:
    for n in CUBES:
        yield matmul(dtype, "cube", n, n, n)
    yield matmul(torch.float16, "cube", CUBES[0], CUBES[0], CUBES[0])
    for rows, units, cols, what in (*MODELS, *BETWEEN):
        yield matmul(dtype, "model", rows, units, cols, what)
    for n in FUSED_CUBES:
        for ends in FUSED:
            yield matmul(dtype, "fused", n, n, n, **ends)
    for rows in FEW_ROWS:
        for units, cols in WEIGHTS:
            yield matmul(dtype, "few rows", rows, units, cols)


def matmul(
    dtype: torch.dtype,
    kind: str,
    rows: int,
    units: int,
    cols: int,
    what: str = "",
    bias: bool = False,
    residual: bool = False,
    act: str = "none",
) -> Product:
    """y = act(x w^T + bias) + residual; with swiglu, w has `units` rows for half as many of y."""
    outputs = units // 2 if act == "swiglu" else units
    shapes = {"x": (rows, cols), "w": (units, cols)}
    shapes |= {"bias": (units,)} if bias else {}
    shapes |= {"residual": (rows, outputs)} if residual else {}
    texts = [f"units={units}", what, "bias" * bias, act * (act != "none"), "residual" * residual]
    few = kind == "few rows"
    fused = bool(bias or residual or act != "none")
    return Product(
        "matmul",
        kind,
        "forward",
        dtype,
        rows,
        cols,
        ", ".join(filter(None, texts)),
        shapes,
        {} if act == "none" else {"act": act},
        0 if few else 2 * rows * units * cols,
        cold=few,
        plain=matmul(dtype, kind, rows, units, cols, what) if fused else None,
    )


def attentions(dtype: torch.dtype) -> Iterator[Product]:
    for direction in ("forward", "backward"):
        for cols in HEAD_SIZES:
            for causal in (True, False):
                for tokens in TOKENS:
                    heads = WIDTH // cols
                    yield attention(
                        dtype, direction, ALL_TOKENS // tokens, heads, tokens, cols, causal
                    )
            heads = WIDTH // cols
            yield attention(torch.float16, direction, 4, heads, 4096, cols, causal=True)


def attention(
    dtype: torch.dtype,
    direction: str,
    batch: int,
    heads: int,
    tokens: int,
    cols: int,
    causal: bool,
    kv_heads: int | None = None,
) -> Product:
    """Two products of tokens * tokens * cols forward, five backward; half of that if causal.

    kv_heads: if it differs from the number of query heads.
    """
    of_keys = (batch, kv_heads or heads, tokens, cols)
    operations = 4 * batch * heads * tokens**2 * cols // (2 if causal else 1)
    return Product(
        "attention",
        "causal" if causal else "full",
        direction,
        dtype,
        tokens,
        cols,
        f"batch={batch}, heads={heads}" + f", kv_heads={kv_heads}" * bool(kv_heads),
        {"q": (batch, heads, tokens, cols), "k": of_keys, "v": of_keys},
        {"causal": causal},
        operations if direction == "forward" else 5 * operations // 2,
        gradients=("q", "k", "v"),
    )


def ropes(dtype: torch.dtype) -> Iterator[Product]:
    for direction in ("forward", "backward"):
        for cols in HEAD_SIZES:
            yield rope(dtype, direction, 4, 4096, cols)


def rope(
    dtype: torch.dtype,
    direction: str,
    batch: int,
    tokens: int,
    cols: int,
    heads: int = HEADS,
    kv_heads: int = KV_HEADS,
) -> Product:
    table = (tokens, cols // 2)
    return Product(
        "rope",
        "halves",
        direction,
        dtype,
        tokens,
        cols,
        f"batch={batch}, heads={heads}, kv_heads={kv_heads}",
        {"qkv": (batch, tokens, (heads + 2 * kv_heads) * cols), "cos": table, "sin": table},
        {"heads": heads, "kv_heads": kv_heads},
        gradients=("qkv",),
        unread=("qkv",),
        cold=True,
    )


def decodes(dtype: torch.dtype) -> Iterator[Product]:
    for cols in HEAD_SIZES:
        for batch, tokens in CACHES:
            yield decode(dtype, batch, tokens, cols)


def decode(
    dtype: torch.dtype,
    batch: int,
    tokens: int,
    cols: int,
    heads: int = HEADS,
    kv_heads: int = KV_HEADS,
) -> Product:
    """One query for each sequence, attending to its cache."""
    cache = (batch, kv_heads, tokens, cols)
    return Product(
        "attention_decode",
        "one query",
        "forward",
        dtype,
        tokens,
        cols,
        f"batch={batch}, heads={heads}, kv_heads={kv_heads}",
        {"q": (batch, heads, 1, cols), "k": cache, "v": cache},
        cold=True,
    )


def matmuls_block_scaled(dtype: torch.dtype) -> Iterator[Product]:
    for format_ in ("mxfp8", "nvfp4"):
        for n in CUBES:
            yield matmul_block_scaled(dtype, format_, n, n, n)


def matmuls_fp8(dtype: torch.dtype) -> Iterator[Product]:
    for scales, fast in [*((scales, False) for scales in SCALES), ("rows", True)]:
        for n in CUBES:
            yield matmul_fp8(dtype, scales, n, n, n, fast=fast)
        for rows, units, cols, what in MODELS:
            yield matmul_fp8(dtype, scales, rows, units, cols, what, fast)
