"""What `make bench` measures of matrix products and attention: in sizes of real models.

Arithmetic is what limits most of them, and the rest moves the weights or the cache of such a model.
Their rows and cols are those of x, q or the cache; all other sizes stand in the options' text.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

import jitload
import reference
from lab.measure import arguments
from lab.measure.case import Case
from lab.rivals.backends import CHOSEN

COLD = 200e6  # bytes that calls go through where traffic limits: several times an L2 cache

# The ops as Op. The function of some is what people call, for their formulas store all scores or
# compute in double.
OPS = {name: reference.OPS[name] for name in ("matmul", "attention", "rope")}
OPS["attention"] = replace(OPS["attention"], function=CHOSEN["attention"])
for _name in ("attention_decode", "matmul_fp8", "linear_cross_entropy"):
    OPS[_name] = reference.Op(_name, CHOSEN[_name], {})
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
FEW_ROWS = (1, 16, 63)
WEIGHTS = ((4096, 4096), (28672, 4096), (4096, 14336))
FUSED = (  # what follows the product
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
ALL_TOKENS = 16384  # of the sequences of a batch together
WIDTH = 2048  # of all heads together
HEAD_SIZES = (64, 128)
CACHES = ((64, 1024), (16, 8192), (4, 32768))  # sequences, and tokens of each
SCALES = {"rows": ("row", "row"), "blocks": ("1x128", "128x128")}  # of x and of w
VOCABULARIES = ((8192, 4096, 128256), (8192, 4096, 32000), (16384, 2048, 50257))
HEADS, KV_HEADS = 32, 8  # of Llama 3 8B


@dataclass(frozen=True)
class Product:
    """A product that everybody computes in turns.

    kind: what it is among the products of its op, as in "few rows".
    direction: "forward", "backward" or "both": forward with a gradient wanted, and backward.
    rows, cols, sizes: its shape; `sizes` is text, as in "units=4096, gate".
    shapes: of each tensor. given: the other arguments.
    operations: of a call, multiplications and additions; 0 where traffic is what counts.
    gradients: the tensors that get one, backward. unread: those that it has no need to read.
    cold: whether its tensors should be in no cache.
    made: makes the inputs of what was drawn in these shapes.
    """

    name: str
    kind: str
    direction: str
    dtype: torch.dtype
    rows: int
    cols: int
    sizes: str
    shapes: dict[str, tuple[int, ...]] = field(hash=False)
    given: dict[str, object] = field(default_factory=dict, hash=False)
    operations: int = 0
    gradients: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    cold: bool = False
    made: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = field(default=None, hash=False)

    on_host = False

    @property
    def op(self) -> reference.Op:
        return OPS[self.name]

    def cases(self) -> list[Case]:
        """The product on random inputs; if they are to be cold, on several sets of them.

        All calls compute the same: `make bench` compares the results of the first.
        """
        elements = sum(math.prod(shape) for shape in self.shapes.values())
        size = max(elements * self.dtype.itemsize, 1)
        on_gpu = jitload.device().type == "cuda"
        sets = math.ceil(COLD / size) + 1 if self.cold and on_gpu and size < COLD else 1
        return [self._case(seed) for seed in range(sets)]

    def _case(self, seed: int) -> Case:
        device, backward = jitload.device(), self.direction != "forward"
        generator = torch.Generator(device).manual_seed(seed)
        inputs: dict[str, Tensor] = {}
        for name, shape in self.shapes.items():
            drawn = torch.randn(shape, device=device, generator=generator).to(self.dtype)
            inputs[name] = drawn.requires_grad_(backward and name in self.gradients)
        inputs = self.made(inputs) if self.made else inputs
        shape = (self.rows, self.cols)
        return Case(
            self.op, shape, self.dtype, device, self.given, backward, seed=seed, inputs=inputs
        )

    def reads(self, case: Case) -> list[Tensor]:
        """What it has to read of a case."""
        if self.direction == "forward":
            return case.reads
        kept = [x for name, x in case.inputs.items() if name not in self.unread]
        return [*kept, *case.arriving]

    def columns(self) -> dict[str, object]:
        return {
            "op": self.name,
            "options": f"{self.kind}: {self.sizes}",
            "direction": self.direction,
            "dtype": arguments.dtype_name(self.dtype),
            "cols": self.cols,
            "rows": self.rows,
        }

    def __str__(self) -> str:
        shape = f"{self.rows} x {self.cols}"
        return f"{self.name}, {self.kind} {self.direction} {shape}, {self.sizes}"


def products(names: list[str], dtype: torch.dtype = torch.bfloat16) -> Iterator[Product]:
    """Everything that a run measures of these ops."""
    makers = {
        "matmul": matmuls,
        "attention": attentions,
        "rope": ropes,
        "attention_decode": decodes,
        "matmul_fp8": matmuls_fp8,
        "linear_cross_entropy": losses,
    }
    for name in NAMES:
        if name in names:
            yield from makers[name](dtype)


def matmuls(dtype: torch.dtype) -> Iterator[Product]:
    for n in CUBES:
        yield matmul(dtype, "cube", n, n, n)
    for rows, units, cols, what in MODELS:
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


def attention(
    dtype: torch.dtype,
    direction: str,
    batch: int,
    heads: int,
    tokens: int,
    cols: int,
    causal: bool,
) -> Product:
    """Two products of tokens * tokens * cols forward, five backward; half of that if causal."""
    operations = 4 * batch * heads * tokens**2 * cols // (2 if causal else 1)
    return Product(
        "attention",
        "causal" if causal else "full",
        direction,
        dtype,
        tokens,
        cols,
        f"batch={batch}, heads={heads}",
        dict.fromkeys(("q", "k", "v"), (batch, heads, tokens, cols)),
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
    """One query for each sequence, against its cache."""
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


def matmuls_fp8(dtype: torch.dtype) -> Iterator[Product]:
    for scales in SCALES:
        for n in CUBES:
            yield matmul_fp8(dtype, scales, n, n, n, "")
        for rows, units, cols, what in MODELS:
            yield matmul_fp8(dtype, scales, rows, units, cols, what)


def matmul_fp8(
    dtype: torch.dtype, scales: str, rows: int, units: int, cols: int, what: str = ""
) -> Product:
    """y = (x x_scale) (w w_scale)^T of floats of one byte, with a result of `dtype`."""
    return Product(
        "matmul_fp8",
        scales,
        "forward",
        dtype,
        rows,
        cols,
        ", ".join(filter(None, (f"units={units}", what))),
        {"x": (rows, cols), "w": (units, cols)},
        operations=2 * rows * units * cols,
        made=functools.partial(_quantized, scales=scales),
    )


def _quantized(drawn: dict[str, Tensor], scales: str) -> dict[str, Tensor]:
    """x and w quantised, and their scales: those of blocks lie as cuBLASLt wants them."""
    inputs = {}
    for (name, tensor), scaling in zip(drawn.items(), SCALES[scales], strict=True):
        inputs[name], scale = reference.quantize(tensor, scaling)
        inputs[f"{name}_scale"] = scale.mT.contiguous().mT if scaling == "1x128" else scale
    return inputs


def losses(dtype: torch.dtype) -> Iterator[Product]:
    for direction in ("forward", "both"):
        for rows, cols, classes in VOCABULARIES:
            yield loss(dtype, direction, rows, cols, classes)


def loss(dtype: torch.dtype, direction: str, rows: int, cols: int, classes: int) -> Product:
    """One product forward, three with its gradients; who computes the logits again has four."""
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
    """Logits of a size that a model has, and a target for each row."""
    x, w = drawn["x"], drawn["w"]
    with torch.no_grad():
        w.mul_(x.shape[1] ** -0.5)
    return {"x": x, "w": w, "target": torch.arange(len(x), device=x.device) % len(w)}
