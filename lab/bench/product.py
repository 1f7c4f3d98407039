"""A product: an op in a size of real models, as `make bench` measures it."""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType

import torch
from torch import Tensor

import jitload
import reference
from lab.measure import arguments
from lab.measure.case import Case
from lab.measure.turns import MOST_CALLS
from lab.rivals.backends import CHOSEN
from lab.rivals.implementation import Implementation, ours

COLD = 200e6  # bytes that cold calls cycle through: several times an L2 cache

# The ops as Op. Some have their public function here, because their formulas store all scores or
# compute in double.
OPS = {name: reference.OPS[name] for name in ("matmul", "attention", "rope")}
OPS["attention"] = replace(OPS["attention"], function=CHOSEN["attention"])
_CALLED = (
    "attention_decode",
    "attention_varlen",
    "matmul_fp8",
    "matmul_w8a16",
    "matmul_block_scaled",
    "grouped_matmul",
)
_QUANTIZED = {"rms_norm_fp8": "rms_norm", "swiglu_fp8": "swiglu"}  # product name: file of the op
for _name in (*_CALLED, "linear_cross_entropy", *_QUANTIZED):
    OPS[_name] = reference.Op(_name, CHOSEN[_name], {})


def module_of(name: str) -> ModuleType:
    """The module of kernels/ with our function for the product of that name."""
    return importlib.import_module(f"kernels.{_QUANTIZED.get(name, name)}")


@dataclass(frozen=True)
class Product:
    """A product that all implementations compute in turns.

    kind: the group of the op's products that it belongs to, such as "few rows".
    direction: "forward", "backward" or "both": forward with gradients required, then backward.
    rows, cols, sizes: its shape; `sizes` is text, as in "units=4096, gate".
    shapes: the shape of each tensor. given: the other arguments.
    operations: multiplications and additions of a call; 0 where traffic is the limit.
    gradients: the tensors that get one in backward. unread: tensors that need not be read.
    cold: whether its tensors should be in no cache.
    made: makes the inputs from tensors drawn in these shapes, such as integers with their scales.
    on_host: whether host time is measured.
    plain: the same product with nothing fused into it, which takes turns, too.
    compiled: whether torch.compile takes turns. number: that of a random cell.
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
    on_host: bool = False
    plain: "Product | None" = field(default=None, hash=False)
    compiled: bool = True
    number: int | None = None

    @property
    def op(self) -> reference.Op:
        return OPS[self.name]

    def ours(self) -> tuple[Implementation, str]:
        """Our best version, and its name with the digest of its kernel."""
        module = module_of(self.name)
        best = module.VERSIONS[-1]
        if self.name in _QUANTIZED:  # these have no other versions
            each = Implementation("ours", getattr(module, self.name), ours=True)
        else:
            each = ours(self.op, best)
        return each, f"{best} {module.kernel.digest}"

    def cases(self) -> list[Case]:
        """The product on random inputs; on several sets of them if they have to be cold.

        All calls compute the same function: `make bench` compares the results of the first.
        """
        first = self.case()
        size = max(sum(tensor.nbytes for tensor in first.inputs.values()), 1)
        on_gpu = jitload.device().type == "cuda"
        sets = math.ceil(COLD / size) + 1 if self.cold and on_gpu and size < COLD else 1
        sets = min(sets, MOST_CALLS)  # a turn has no more calls
        return [first, *(self._case(seed) for seed in range(1, sets))]

    def case(self) -> Case:
        """The first of the cases."""
        return self._case(0)

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
        """The tensors of a case that must be read."""
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
        } | ({} if self.number is None else {"number": self.number})

    def __str__(self) -> str:
        shape = f"{self.rows} x {self.cols}"
        kind = f"{self.kind} {self.direction}"
        if self.dtype != torch.bfloat16:
            kind = f"{kind} {arguments.dtype_name(self.dtype)}"
        return f"{self.name}, {kind} {shape}, {self.sizes}"


@dataclass(frozen=True)
class Rows(Product):
    """An op on rows, with inputs drawn as in reference.py; `given` are its options."""

    @property
    def op(self) -> reference.Op:
        return reference.OPS[self.name]

    def _case(self, seed: int) -> Case:
        shape, backward = (self.rows, self.cols), self.direction == "backward"
        return Case(self.op, shape, self.dtype, jitload.device(), self.given, backward, seed=seed)

    def reads(self, case: Case) -> list[Tensor]:
        return case.reads
