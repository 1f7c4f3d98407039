"""Calls of the ops that `reference.OPS` draws no inputs for: of packed sequences, caches and bytes.

Such an op is any public function of a module in kernels/ that is named as the module or begins so.
`CALLS` has each in every version with every choice that takes another path.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from op_cases import DEVICE, by_name, module_of, outcome
from torch import Tensor

import jitload
import reference
from kernels.quantize import quantize
from kernels.quantize_mxfp8 import quantize_mxfp8
from kernels.quantize_nvfp4 import quantize_nvfp4


@dataclass(frozen=True)
class Call:
    """An op in one version, and how its arguments are drawn from a seed and a device."""

    name: str
    module: str
    version: str | None  # None where the op takes none
    choice: str
    draw: Callable[["Draw"], dict[str, object]]

    def __str__(self) -> str:
        return "-".join(filter(None, (self.name, self.version, self.choice)))

    @property
    def is_best(self) -> bool:
        return self.version in (None, module_of(self.module).VERSIONS[-1])

    @property
    def has_gradient(self) -> bool:
        return (
            self.name == self.module and "backward" in module_of(self.module).kernel.build.exports
        )

    def inputs(self, seed: int = 0) -> dict[str, object]:
        return self.draw(Draw(seed))

    def ours(self, **inputs: object) -> Tensor | tuple[Tensor, ...]:
        version = {"version": self.version} if self.version else {}
        return getattr(module_of(self.module), self.name)(**inputs, **version)

    def outcome(
        self, inputs: dict[str, object], function: Callable | None = None
    ) -> dict[str, Tensor]:
        """The outputs by name and, where the op has one, the gradient of every input x as "dx".

        function: in place of `ours`.
        """
        function = function or self.ours
        if not self.has_gradient:
            return by_name(function(**inputs))
        tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        others = {name: value for name, value in inputs.items() if name not in tensors}
        return outcome(lambda **given: function(**given, **others), tensors)


class Draw:
    """Random tensors, the same whenever the seed is the same."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator(DEVICE).manual_seed(seed)

    def floats(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        noise = torch.randn(shape, device=DEVICE, generator=self.generator)
        return noise.add_(0.25).to(dtype)

    def integers(
        self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32
    ) -> Tensor:
        like = {"device": DEVICE, "generator": self.generator}
        return torch.randint(low, high, shape, dtype=dtype, **like)

    def begins(self, sequences: int, tokens: int) -> Tensor:
        """Where each of so many sequences begins and the last one ends, of any length each."""
        middle = self.integers(0, tokens + 1, sequences - 1).sort().values
        return torch.cat((middle.new_zeros(1), middle, middle.new_full((1,), tokens)))


# ---- the arguments of each op; the sizes take tiles and their tails


def attention_varlen(draw: Draw, cols: int, **mask: object) -> dict[str, object]:
    rows, keys = 140, 90
    return {
        "q": draw.floats(rows, 2, cols),
        "k": draw.floats(keys, 1, cols),
        "v": draw.floats(keys, 1, cols),
        "cu_seqlens_q": draw.begins(3, rows),
        "cu_seqlens_k": draw.begins(3, keys),
        **mask,
    }


def attention_decode(draw: Draw, cols: int) -> dict[str, object]:
    batch, tokens = 2, 600
    return {
        "q": draw.floats(batch, 8, 1, cols),
        "k": draw.floats(batch, 2, tokens, cols),
        "v": draw.floats(batch, 2, tokens, cols),
        "lengths": draw.integers(1, tokens + 1, batch),
    }


def attention_decode_in_pages(draw: Draw) -> dict[str, object]:
    batch, each, page_size = 3, 20, 16
    pages = batch * each
    return {
        "q": draw.floats(batch, 8, 2, 128),
        "k": draw.floats(pages, page_size, 2, 128),
        "v": draw.floats(pages, page_size, 2, 128),
        "lengths": draw.integers(1, each * page_size + 1, batch),
        "block_table": draw.integers(0, pages, batch, each),
        "window": 100,
    }


def grouped_matmul(draw: Draw, cols: int, units: int = 136, act: str = "none") -> dict[str, object]:
    experts, rows = 4, 150
    return {
        "x": draw.floats(rows, cols),
        "w": draw.floats(experts, units, cols),
        "offsets": draw.begins(experts, rows)[1:],
        "act": act,
    }


def to_quantize(draw: Draw, scaling: str, cols: int = 300) -> dict[str, object]:
    scale = {"scale": torch.tensor(0.01, device=DEVICE)} if scaling == "tensor" else {}
    return {"x": draw.floats(150, cols), "scaling": scaling, **scale}


def matmul_fp8(draw: Draw, scalings: tuple[str, str], cols: int) -> dict[str, object]:
    x, x_scale = quantize(draw.floats(200, cols), scalings[0])
    w, w_scale = quantize(draw.floats(136, cols), scalings[1])
    return {"x": x, "w": w, "x_scale": x_scale, "w_scale": w_scale, "bias": draw.floats(136)}


def matmul_block_scaled(draw: Draw, quantize_it: Callable, cols: int) -> dict[str, object]:
    x, w = quantize_it(draw.floats(200, cols)), quantize_it(draw.floats(136, cols))
    scale = {"x_scale": x[2], "w_scale": w[2]} if len(x) == 3 else {}
    return {"x": x[0], "w": w[0], "x_scales": x[1], "w_scales": w[1], **scale}


def matmul_w8a16(draw: Draw, rows: int, cols: int, groups: bool) -> dict[str, object]:
    units = 136
    return {
        "x": draw.floats(rows, cols),
        "w": draw.integers(-128, 128, units, cols, dtype=torch.int8),
        "w_scale": draw.floats(units, -(-cols // 128) if groups else 1, dtype=torch.float32) / 64,
        "bias": draw.floats(units),
    }


def rms_norm_fp8(draw: Draw, cols: int, scaling: str, residual: bool) -> dict[str, object]:
    shape = (37, cols)
    added = {"residual": draw.floats(*shape)} if residual else {}
    return {"x": draw.floats(*shape), "weight": draw.floats(cols), "scaling": scaling, **added}


def swiglu_fp8(draw: Draw, cols: int, scaling: str) -> dict[str, object]:
    return {"a": draw.floats(37, cols), "b": draw.floats(37, cols), "scaling": scaling}


DRAWN: dict[str, dict[str, Callable[[Draw], dict[str, object]]]] = {
    "attention_varlen": {
        "64": lambda draw: attention_varlen(draw, 64),
        "128-causal": lambda draw: attention_varlen(draw, 128, causal=True),
        "256-window": lambda draw: attention_varlen(draw, 256, window=(40, 9)),
    },
    "attention_decode": {
        "64": lambda draw: attention_decode(draw, 64),
        "128": lambda draw: attention_decode(draw, 128),
        "pages": attention_decode_in_pages,
    },
    "grouped_matmul": {
        "": lambda draw: grouped_matmul(draw, 272),
        "odd": lambda draw: grouped_matmul(draw, 135, 35),
        "swiglu": lambda draw: grouped_matmul(draw, 272, act="swiglu"),
    },
    "quantize": {
        scaling: lambda draw, scaling=scaling: to_quantize(draw, scaling)
        for scaling in ("tensor", "row", "1x128", "128x128")
    },
    "matmul_fp8": {
        "rows": lambda draw: matmul_fp8(draw, ("row", "row"), 272),
        "blocks": lambda draw: matmul_fp8(draw, ("1x128", "128x128"), 272),
        "odd": lambda draw: matmul_fp8(draw, ("row", "row"), 135),
    },
    "quantize_mxfp8": {"": lambda draw: {"x": draw.floats(150, 288)}},
    "quantize_nvfp4": {
        "": lambda draw: {"x": draw.floats(150, 272)},
        "scale": lambda draw: {
            "x": draw.floats(150, 272),
            "scale": torch.tensor(0.01, device=DEVICE),
        },
    },
    "matmul_block_scaled": {
        "mxfp8": lambda draw: matmul_block_scaled(draw, quantize_mxfp8, 288),
        "nvfp4": lambda draw: matmul_block_scaled(draw, quantize_nvfp4, 272),
    },
    "matmul_w8a16": {
        "few": lambda draw: matmul_w8a16(draw, 5, 528, groups=True),
        "many": lambda draw: matmul_w8a16(draw, 150, 528, groups=False),
        "odd": lambda draw: matmul_w8a16(draw, 9, 135, groups=True),
    },
    "rms_norm_fp8": {
        "row": lambda draw: rms_norm_fp8(draw, 1000, "row", residual=True),
        "1x128": lambda draw: rms_norm_fp8(draw, 1000, "1x128", residual=False),
        "wide": lambda draw: rms_norm_fp8(draw, 9001, "row", residual=True),
    },
    "swiglu_fp8": {
        "row": lambda draw: swiglu_fp8(draw, 1000, "row"),
        "1x128": lambda draw: swiglu_fp8(draw, 1000, "1x128"),
        "wide": lambda draw: swiglu_fp8(draw, 9001, "row"),
    },
}


def functions() -> dict[str, str]:
    """The module of each op in kernels/ that `reference.OPS` does not have."""
    return {
        name: stem
        for stem in jitload.op_files(".py")
        for name, function in vars(module_of(stem)).items()
        if name.startswith(stem) and getattr(function, "__module__", "") == f"kernels.{stem}"
        if name not in reference.OPS
    }


def versions_of(name: str, module: str) -> tuple[str | None, ...]:
    return module_of(module).VERSIONS if name == module else (None,)


CALLS = [
    Call(name, module, version, choice, draw)
    for name, module in functions().items()
    for version in versions_of(name, module)
    for choice, draw in DRAWN[name].items()
]
BEST_CALLS = [call for call in CALLS if call.is_best]


def moved(inputs: dict[str, object], device: str) -> dict[str, object]:
    """The same arguments with all tensors on another device."""
    return {n: v.to(device) if isinstance(v, Tensor) else v for n, v in inputs.items()}


def bits_of(t: Tensor) -> Tensor:
    return t.contiguous().view(-1).view(torch.uint8)


def assert_same_bits(got: dict[str, Tensor], want: dict[str, Tensor]) -> None:
    """Also of floats of one byte, which torch.equal does not compare, and of NaNs."""
    assert got.keys() == want.keys()
    for name, y in want.items():
        assert got[name].shape == y.shape, name
        assert torch.equal(bits_of(got[name]), bits_of(y)), name
