"""Products with prepared inputs: labels, lengths, or eight-bit tensors with scales."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

import reference
from lab.bench.product import Product

SCALES = {"rows": ("row", "row"), "blocks": ("1x128", "128x128")}  # of x and of w
VOCABULARIES = (
    (2048, 4096, 128256),
    (4096, 4096, 128256),
    (8192, 4096, 128256),
    (8192, 4096, 32000),
    (16384, 2048, 50257),
)
LENGTHS = (512, 4096)  # average length of the sequences
PACKED_TOKENS = 16384
BYTE_WEIGHTS = ((28672, 4096), (4096, 14336))
BYTE_ROWS = (1, 16, 63, 512)
QUANTIZED_ROWS = (512, 16384)
GROUPED = (  # rows, experts, units and cols
    (4096, 8, 4096, 14336),
    (4096, 32, 2048, 7168),
    (8192, 128, 1536, 4096),
)


def packed(dtype: torch.dtype) -> Iterator[Product]:
    for direction in ("forward", "backward"):
        for cols in (64, 128):
            for length in LENGTHS:
                yield packed_sequences(dtype, direction, length, PACKED_TOKENS // length, cols)


def packed_sequences(
    dtype: torch.dtype, direction: str, length: int, count: int, cols: int, width: int = 2048
) -> Product:
    """Causal attention of `count` sequences, in turn half and 3/2 as long as `length`."""
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
        made=partial(_with_lengths, lengths=tuple(lengths)),
    )


def _with_lengths(inputs: dict[str, Tensor], lengths: tuple[int, ...]) -> dict[str, Tensor]:
    ends = torch.tensor((0, *lengths), device=inputs["q"].device).cumsum(0).int()
    return inputs | {"cu_seqlens_q": ends, "cu_seqlens_k": ends}


def grouped(dtype: torch.dtype) -> Iterator[Product]:
    for direction in ("forward", "backward"):
        for sizes in GROUPED:
            yield grouped_matmul(dtype, direction, *sizes)


def grouped_matmul(
    dtype: torch.dtype,
    direction: str,
    rows: int,
    experts: int,
    units: int,
    cols: int,
    act: str = "none",
) -> Product:
    """units: the rows of w. Experts have unequal shares of the rows, as routers assign them."""
    return Product(
        "grouped_matmul",
        "uneven",
        direction,
        dtype,
        rows,
        cols,
        f"experts={experts}, units={units}" + (f", act={act}" if act != "none" else ""),
        {"x": (rows, cols), "w": (experts, units, cols)},
        {"act": act},
        2 * rows * units * cols * (1 if direction == "forward" else 2),
        gradients=("x", "w"),
        made=_with_offsets,
    )


def _with_offsets(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Uneven shares: proportional to squares of random numbers, plus a hundredth.

    Weights are scaled like a layer's: products of two halves of z would be infinite in float16.
    """
    x, w = inputs.values()
    w = (w.detach() / w.shape[-1] ** 0.5).requires_grad_(w.requires_grad)
    generator = torch.Generator().manual_seed(len(x))
    shares = torch.rand(len(w), generator=generator, dtype=torch.float64).square() + 0.01
    ends = (len(x) * shares.cumsum(0) / shares.sum()).round().int()
    return {"x": x, "w": w, "offsets": ends.to(x.device)}


def few_rows_of_bytes(dtype: torch.dtype) -> Iterator[Product]:
    for rows in BYTE_ROWS:
        for units, cols in BYTE_WEIGHTS:
            yield w8a16(dtype, rows, units, cols)


def w8a16(dtype: torch.dtype, rows: int, units: int, cols: int) -> Product:
    """int8 weights with a scale for each row."""
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
        made=_as_bytes,
    )


def _as_bytes(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    w = inputs["w"].float()
    scale = w.abs().amax(1, keepdim=True) / 127
    return {"x": inputs["x"], "w": (w / scale).round().char(), "w_scale": scale}


def matmul_fp8(
    dtype: torch.dtype,
    scales: str,
    rows: int,
    units: int,
    cols: int,
    what: str = "",
    fast: bool = False,
) -> Product:
    """y = (x x_scale) (w w_scale)^T with one-byte floats and a result of `dtype`.

    fast: the tensor cores alone accumulate.
    """
    return Product(
        "matmul_fp8",
        f"{scales}, fast sums" if fast else scales,
        "forward",
        dtype,
        rows,
        cols,
        ", ".join(filter(None, (f"units={units}", what))),
        {"x": (rows, cols), "w": (units, cols)},
        {"use_fast_accum": fast},
        operations=2 * rows * units * cols,
        made=partial(_quantized, scales=scales),
    )


def _quantized(drawn: dict[str, Tensor], scales: str) -> dict[str, Tensor]:
    """x and w quantized, and their scales; block scales are laid out as cuBLASLt expects."""
    inputs = {}
    for (name, tensor), scaling in zip(drawn.items(), SCALES[scales], strict=True):
        inputs[name], scale = reference.quantize(tensor, scaling)
        inputs[f"{name}_scale"] = scale.mT.contiguous().mT if scaling == "1x128" else scale
    return inputs


def matmul_block_scaled(
    dtype: torch.dtype, format_: str, rows: int, units: int, cols: int, what: str = ""
) -> Product:
    """y = x w^T of matrices in a block-scaled format: "mxfp8" or "nvfp4"."""
    return Product(
        "matmul_block_scaled",
        format_,
        "forward",
        dtype,
        rows,
        cols,
        ", ".join(filter(None, (f"units={units}", what))),
        {"x": (rows, cols), "w": (units, cols)},
        operations=2 * rows * units * cols,
        made=partial(_in_blocks, format_=format_),
    )


def _in_blocks(drawn: dict[str, Tensor], format_: str) -> dict[str, Tensor]:
    inputs = {}
    for name, tensor in drawn.items():
        made = getattr(reference, f"quantize_{format_}")(tensor)
        names = (name, f"{name}_scales", f"{name}_scale")  # the last: the scale of the whole tensor
        inputs |= dict(zip(names, made, strict=False))
    return inputs


def norms_fp8(dtype: torch.dtype) -> Iterator[Product]:
    """The operand of a model's first product after a norm, quantized, with its scales."""
    for scaling in ("row", "1x128"):
        for rows in QUANTIZED_ROWS:
            yield rms_norm_fp8(dtype, scaling, rows, 4096)


def rms_norm_fp8(dtype: torch.dtype, scaling: str, rows: int, cols: int) -> Product:
    shapes = {"x": (rows, cols), "weight": (cols,)}
    return _quantizing("rms_norm_fp8", dtype, scaling, "before gate and up", shapes)


def swiglus_fp8(dtype: torch.dtype) -> Iterator[Product]:
    """The same for the last product of the model's MLP."""
    for scaling in ("row", "1x128"):
        for rows in QUANTIZED_ROWS:
            yield swiglu_fp8(dtype, scaling, rows, 14336)


def swiglu_fp8(dtype: torch.dtype, scaling: str, rows: int, cols: int) -> Product:
    shapes = dict.fromkeys(("a", "b"), (rows, cols))
    return _quantizing("swiglu_fp8", dtype, scaling, "before down", shapes)


def _quantizing(
    name: str,
    dtype: torch.dtype,
    scaling: str,
    what: str,
    shapes: dict[str, tuple[int, ...]],
) -> Product:
    rows, cols = next(iter(shapes.values()))
    given = {"scaling": scaling}
    return Product(
        name, f"scales of {scaling}", "forward", dtype, rows, cols, what, shapes, given, cold=True
    )


def losses(dtype: torch.dtype) -> Iterator[Product]:
    """Backward alone is not measured: some rivals compute all gradients in the forward pass."""
    for direction in ("forward", "both"):
        for rows, cols, classes in VOCABULARIES:
            yield loss(dtype, direction, rows, cols, classes)


def loss(dtype: torch.dtype, direction: str, rows: int, cols: int, classes: int) -> Product:
    """One product forward, three with gradients, or four where the logits are recomputed."""
    return Product(
        "linear_cross_entropy",
        "mean",
        direction,
        dtype,
        rows,
        cols,
        f"classes={classes}",
        {"x": (rows, cols), "w": (classes, cols)},
        operations=2 * rows * cols * classes * (1 if direction == "forward" else 3),
        gradients=("x", "w"),
        made=_with_targets,
    )


def _with_targets(drawn: dict[str, Tensor]) -> dict[str, Tensor]:
    """Logits of realistic size, and a target for each row."""
    x, w = drawn["x"], drawn["w"]
    with torch.no_grad():
        w.mul_(x.shape[1] ** -0.5)
    return {"x": x, "w": w, "target": torch.arange(len(x), device=x.device) % len(w)}
