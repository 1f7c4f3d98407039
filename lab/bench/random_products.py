"""What `python -m lab.bench --random` measures: every op in random shapes.

A cell depends only on the seed and its number, so a single one can be drawn again. Widths are
those of public models, or awkward ones; rows range from 1 to 65536 on a logarithmic scale.
"""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import torch

import reference
from lab.bench import products
from lab.bench.cells import NAMES, directions, variants
from lab.bench.models import MIXTURES, MODELS, Model
from lab.bench.prepared_products import (
    grouped_matmul,
    loss,
    matmul_block_scaled,
    matmul_fp8,
    packed_sequences,
    rms_norm_fp8,
    swiglu_fp8,
    w8a16,
)
from lab.bench.product import Product, Rows

ELEMENTS = 1 << 28  # limit for a tensor
OPERATIONS = 1e13  # limit for a call
ROWS = 1 << 16
WIDTH = 1 << 18
HALVES = (torch.bfloat16, torch.float16)

OPS = [*NAMES, *products.NAMES]


def drawn(seed: int, number: int, names: list[str]) -> Product:
    """The cell with that number, of one of the ops in `names`."""
    draw = random.Random(f"{seed} {number}")
    name = draw.choices(names, [3 if name in ("matmul", "attention") else 1 for name in names])[0]
    model = MODELS[draw.choice([*MODELS])]
    product = _DRAWN[name](draw, model) if name in _DRAWN else _rows_of(name, draw, model)
    return replace(product, kind="random", number=number, cold=True, compiled=name in NAMES)


def _logarithmic(draw: random.Random, least: int, most: int) -> int:
    """Log-uniform; half of the draws are rounded to four binary digits, as people choose sizes."""
    found = round(2 ** draw.uniform(math.log2(least), math.log2(max(least, most))))
    step = 1 << max(found.bit_length() - 4, 0)
    return found if draw.random() < 0.5 else max(found // step * step, least)


def _rows_of(name: str, draw: random.Random, model: Model) -> Product:
    of_classes = name in ("softmax", "cross_entropy")
    widths = [model.classes] if of_classes else [model.hidden, model.inner]
    cols = draw.choice(widths) if draw.random() < 0.7 else _logarithmic(draw, 1, WIDTH)
    rows = _logarithmic(draw, 1, min(ROWS, ELEMENTS // cols))
    dtype = draw.choice((*HALVES, torch.bfloat16, torch.float32))
    op = reference.OPS[name]
    options = draw.choice(variants(op))
    direction = draw.choice(directions(op, options))
    sizes = ", ".join(f"{key}={value}" for key, value in options.items())
    return Rows(name, "random", direction, dtype, rows, cols, sizes, {}, options)


def _weights(draw: random.Random, model: Model) -> tuple[int, int, int]:
    """rows, units and cols of a product; one in seven has awkward units and cols."""
    units, cols = draw.choice(model.weights())
    if draw.random() < 1 / 7:
        units, cols = units + draw.randint(-99, 99), cols + draw.randint(-99, 99)
    most = min(ROWS, ELEMENTS // max(units, cols), int(OPERATIONS / (2 * units * cols)))
    return _logarithmic(draw, 1, most), units, cols


def _matmul(draw: random.Random, model: Model) -> Product:
    rows, units, cols = _weights(draw, model)
    dtype, bias = draw.choice(HALVES), draw.random() < 0.25
    return products.matmul(dtype, "random", rows, units, cols, bias=bias)


def _matmul_fp8(draw: random.Random, model: Model) -> Product:
    """torch._scaled_mm takes only widths that are multiples of 16; blocks have 128."""
    rows, units, cols = _weights(draw, model)
    scales, fast = draw.choice((("rows", False), ("rows", True), ("blocks", False)))
    step = 128 if scales == "blocks" else 16
    units, cols = (max(step, size // step * step) for size in (units, cols))
    return matmul_fp8(torch.bfloat16, scales, rows, units, cols, fast=fast)


def _matmul_block_scaled(draw: random.Random, model: Model) -> Product:
    """A scale of these formats covers 16 or 32 columns."""
    rows, units, cols = _weights(draw, model)
    cols = max(32, cols // 32 * 32)
    return matmul_block_scaled(torch.bfloat16, draw.choice(("mxfp8", "nvfp4")), rows, units, cols)


def _matmul_w8a16(draw: random.Random, model: Model) -> Product:
    rows, units, cols = _weights(draw, model)
    return w8a16(draw.choice(HALVES), min(rows, 1024), units, cols)


def _grouped(draw: random.Random, _: Model) -> Product:
    """As many of a mixture's experts as one GPU may hold: other GPUs hold the rest.

    torch._grouped_mm has a kernel for bfloat16 only.
    """
    experts = MIXTURES[draw.choice([*MIXTURES])]
    units, cols = draw.choice(experts.weights())
    count = min(experts.count, 4 * ELEMENTS // (units * cols))
    most = min(ROWS, ELEMENTS // max(units, cols), int(OPERATIONS / (2 * units * cols)))
    rows = _logarithmic(draw, 1, most)
    act = draw.choice(("none", "swiglu")) if cols == experts.hidden else "none"
    direction = draw.choice(("forward", "backward"))
    return grouped_matmul(torch.bfloat16, direction, rows, count, units, cols, act)


def _attention(draw: random.Random, model: Model) -> Product:
    tokens, direction = _logarithmic(draw, 128, 8192), draw.choice(("forward", "backward"))
    of_each = 4 * model.heads * tokens**2 * model.cols * (1 if direction == "forward" else 2.5)
    batch = _logarithmic(draw, 1, min(64, ROWS // tokens, int(OPERATIONS / of_each)))
    dtype, causal = draw.choice(HALVES), draw.random() < 0.5
    heads = model.heads, model.kv_heads
    return products.attention(
        dtype, direction, batch, heads[0], tokens, model.cols, causal, heads[1]
    )


def _decode(draw: random.Random, model: Model) -> Product:
    tokens = _logarithmic(draw, 100, 32768)
    most = ELEMENTS // (model.kv_heads * tokens * model.cols)
    batch = _logarithmic(draw, 1, min(64, most))
    heads = model.heads, model.kv_heads
    return products.decode(draw.choice(HALVES), batch, tokens, model.cols, *heads)


def _varlen(draw: random.Random, model: Model) -> Product:
    length, direction = _logarithmic(draw, 64, 4096), draw.choice(("forward", "backward"))
    count, width = _logarithmic(draw, 1, ROWS // 2 // length), model.heads * model.cols
    dtype = draw.choice(HALVES)
    return packed_sequences(dtype, direction, length, count, model.cols, width)


def _rope(draw: random.Random, model: Model) -> Product:
    width = (model.heads + 2 * model.kv_heads) * model.cols
    tokens = _logarithmic(draw, 1, min(8192, ELEMENTS // width))
    batch = _logarithmic(draw, 1, min(64, ELEMENTS // width // tokens))
    dtype, direction = draw.choice(HALVES), draw.choice(("forward", "backward"))
    heads = model.heads, model.kv_heads
    return products.rope(dtype, direction, batch, tokens, model.cols, *heads)


def _loss(draw: random.Random, model: Model) -> Product:
    most = int(OPERATIONS / (6 * model.hidden * model.classes))
    rows = _logarithmic(draw, 1, min(16384, most))
    direction = draw.choice(("forward", "both"))
    return loss(draw.choice(HALVES), direction, rows, model.hidden, model.classes)


def _quantizing(
    made: Callable[..., Product], width: str
) -> Callable[[random.Random, Model], Product]:
    def make(draw: random.Random, model: Model) -> Product:
        cols = getattr(model, width) // 128 * 128
        rows = _logarithmic(draw, 1, min(ROWS, ELEMENTS // cols))
        return made(draw.choice(HALVES), draw.choice(("row", "1x128")), rows, cols)

    return make


_DRAWN = {
    "matmul": _matmul,
    "matmul_fp8": _matmul_fp8,
    "matmul_w8a16": _matmul_w8a16,
    "matmul_block_scaled": _matmul_block_scaled,
    "grouped_matmul": _grouped,
    "attention": _attention,
    "attention_decode": _decode,
    "attention_varlen": _varlen,
    "rope": _rope,
    "linear_cross_entropy": _loss,
    "rms_norm_fp8": _quantizing(rms_norm_fp8, "hidden"),
    "swiglu_fp8": _quantizing(swiglu_fp8, "inner"),
}
