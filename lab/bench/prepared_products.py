"""Products that take more than random numbers: labels, lengths, or eight bits with their scales."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from lab.bench.product import Product

LOSSES = ((8192, 4096, 32000), (8192, 4096, 128256))  # rows, cols and classes of Llama 2 and 3
LENGTHS = (512, 4096)  # of the sequences on average
PACKED_TOKENS = 16384
EIGHT_BITS = (  # rows, units and cols
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 6144, 4096),
    (4096, 4096, 14336),
)
SCALES = ("tensor", "row", "block")
BYTE_WEIGHTS = ((28672, 4096), (4096, 14336))
BYTE_ROWS = (1, 8, 512)


def losses(
    dtype: torch.dtype,
    sizes: tuple[tuple[int, int, int], ...] = LOSSES,
    directions: tuple[str, ...] = ("forward", "both"),
) -> Iterator[Product]:
    """linear_cross_entropy. Backward alone is not measured: some compute all of it in forward."""
    for direction in directions:
        for rows, cols, classes in sizes:
            products = 1 if direction == "forward" else 3
            yield Product(
                "linear_cross_entropy",
                "mean",
                direction,
                dtype,
                rows,
                cols,
                f"classes={classes}",
                {"x": (rows, cols), "w": (classes, cols), "target": (rows,)},
                operations=2 * products * rows * cols * classes,
                gradients=("x", "w"),
                prepare=partial(_with_labels, classes=classes),
            )


def _with_labels(inputs: dict[str, Tensor], classes: int) -> dict[str, Tensor]:
    """Weights for sums over cols, and labels, of the random numbers."""
    w, noise = inputs["w"], inputs["target"]
    scaled = (w.detach() * w.shape[1] ** -0.5).requires_grad_(w.requires_grad)
    labels = (noise.float() * classes).long().remainder(classes)
    return inputs | {"w": scaled, "target": labels}


def packed(dtype: torch.dtype) -> Iterator[Product]:
    for direction in ("forward", "backward"):
        for cols in (64, 128):
            for length in LENGTHS:
                yield packed_sequences(dtype, direction, length, PACKED_TOKENS // length, cols)


def packed_sequences(
    dtype: torch.dtype, direction: str, length: int, count: int, cols: int, width: int = 2048
) -> Product:
    """Causal attention of `count` sequences, half of which have 3/2 of the tokens of `length`."""
    lengths = [length // 2, length + length // 2] * (count // 2) + [length] * (count % 2)
    heads = width // cols
    pairs = sum(tokens * tokens for tokens in lengths)
    operations = 4 * heads * pairs * cols // 2
    shape = (sum(lengths), heads, cols)
    return Product(
        "attention_varlen",
        "causal",
        direction,
        dtype,
        sum(lengths),
        cols,
        f"sequences={count}, heads={heads}",
        dict.fromkeys(("q", "k", "v"), shape),
        {"causal": True, "max_seqlen_q": max(lengths), "max_seqlen_k": max(lengths)},
        operations if direction == "forward" else 5 * operations // 2,
        gradients=("q", "k", "v"),
        prepare=partial(_with_lengths, lengths=tuple(lengths)),
    )


def _with_lengths(inputs: dict[str, Tensor], lengths: tuple[int, ...]) -> dict[str, Tensor]:
    ends = torch.tensor((0, *lengths), device=inputs["q"].device).cumsum(0).int()
    return inputs | {"cu_seqlens_q": ends, "cu_seqlens_k": ends}


def eight_bits(dtype: torch.dtype) -> Iterator[Product]:
    for scales in SCALES:
        for rows, units, cols in EIGHT_BITS:
            yield fp8(dtype, scales, rows, units, cols)


def fp8(dtype: torch.dtype, scales: str, rows: int, units: int, cols: int) -> Product:
    """scales: one for all of a matrix, for each row, or for 1 x 128 of x and 128 x 128 of w."""
    return Product(
        "matmul_fp8",
        scales,
        "forward",
        dtype,
        rows,
        cols,
        f"units={units}",
        {"x": (rows, cols), "w": (units, cols)},
        operations=2 * rows * units * cols,
        prepare=partial(_as_fp8, scales=scales),
    )


def _as_fp8(inputs: dict[str, Tensor], scales: str) -> dict[str, Tensor]:
    from kernels.quantize import quantize  # it is built where it is needed alone

    found = {}
    for name, groups in {"x": "1x128", "w": "128x128"}.items():
        value = inputs[name]
        if scales == "tensor":
            one = value.abs().max().float() / torch.finfo(torch.float8_e4m3fn).max
            found[name], found[f"{name}_scale"] = quantize(value, "tensor", one)
        else:
            groups = groups if scales == "block" else "row"
            found[name], found[f"{name}_scale"] = quantize(value, groups)
    return found


def few_rows_of_bytes(dtype: torch.dtype) -> Iterator[Product]:
    for rows in BYTE_ROWS:
        for units, cols in BYTE_WEIGHTS:
            yield w8a16(dtype, rows, units, cols)


def w8a16(dtype: torch.dtype, rows: int, units: int, cols: int) -> Product:
    """Weights of int8 with a scale for each row."""
    few = rows < 64
    return Product(
        "matmul_w8a16",
        "few rows" if few else "rows",
        "forward",
        dtype,
        rows,
        cols,
        f"units={units}",
        {"x": (rows, cols), "w": (units, cols)},
        operations=0 if few else 2 * rows * units * cols,
        cold=few,
        prepare=_as_bytes,
    )


def _as_bytes(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    w = inputs["w"].float()
    scale = w.abs().amax(1, keepdim=True) / 127
    return {"x": inputs["x"], "w": (w / scale).round().char(), "w_scale": scale}
