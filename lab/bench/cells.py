"""What `make bench` measures: each op with its directions, types and widths."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

import jitload
import reference
from lab.bench import products
from lab.measure import arguments
from lab.measure.case import Case
from lab.rivals.pytorch import eager

COLS = (256, 1024, 4096, 8192, 16384, 65536, 262144)
ELEMENTS = {torch.bfloat16: 1 << 28, torch.float32: 1 << 27}
# Memory-bound ops, on rows of any width.
NAMES = [name for name in reference.OPS if name not in products.NAMES]
HOST_SHAPE = (64, 1024)


@dataclass(frozen=True)
class Cell:
    """The unit of measurement: an op in one direction, type and shape, for all implementations.

    direction: "forward", "backward" or, for host times, "both".
    """

    name: str
    options: dict = field(hash=False)
    direction: str
    dtype: torch.dtype
    shape: tuple[int, int]

    @property
    def cols(self) -> int:
        return self.shape[1]

    @property
    def on_host(self) -> bool:
        """Whether host time is measured."""
        return self.shape == HOST_SHAPE

    @property
    def op(self) -> reference.Op:
        return reference.OPS[self.name]

    def case(self) -> Case:
        backward = self.direction != "forward"
        return Case(self.op, self.shape, self.dtype, jitload.device(), self.options, backward)

    def columns(self) -> dict[str, object]:
        return {
            "op": self.name,
            "options": ", ".join(f"{name}={value}" for name, value in self.options.items()),
            "direction": self.direction,
            "dtype": arguments.dtype_name(self.dtype),
            "cols": self.shape[1],
            "rows": self.shape[0],
        }

    def __str__(self) -> str:
        *names, cols, rows = self.columns().values()
        return " ".join([*filter(None, names), f"{rows} x {cols}"])


def cells(names: list[str], dtypes: list[torch.dtype], cols: list[int]) -> Iterator[Cell]:
    """All cells that a run measures on the GPU, op by op."""
    for name in names:
        op = reference.OPS[name]
        for options in variants(op):
            for direction, dtype, width in itertools.product(directions(op, options), dtypes, cols):
                shape = (max(ELEMENTS[dtype] // width, 1), width)
                yield Cell(name, options, direction, dtype, shape)


def host_cells(names: list[str]) -> Iterator[Cell]:
    """The cells for host time: a call with little work, without and with gradients."""
    for name in names:
        for options, direction in itertools.product(
            variants(reference.OPS[name]), ("forward", "both")
        ):
            yield Cell(name, options, direction, torch.float32, HOST_SHAPE)


def directions(op: reference.Op, options: dict) -> tuple[str, ...]:
    """Forward, and backward unless the gradients are only views of the arriving one."""
    case = Case(op, (2, 3), torch.float32, torch.device("cpu"), options, backward=True)
    _, gradients = case.start(eager(op))
    arriving = {grad.untyped_storage().data_ptr() for grad in case.arriving}
    if all(grad.untyped_storage().data_ptr() in arriving for grad in gradients):
        return ("forward",)
    return ("forward", "backward")


def variants(op: reference.Op) -> list[dict]:
    """One set of options for each combination of tensors that an op takes or returns."""
    found: dict[tuple, dict] = {}
    for options in op.options:
        inputs = op.inputs(2, 3, without=options)
        result = op.function(**inputs, **options)
        outputs = [result] if isinstance(result, torch.Tensor) else result
        kinds = tuple((y.shape, y.dtype) for y in (*inputs.values(), *outputs))
        found.setdefault(kinds, options)
    return list(found.values())
