"""What the tests, the proof and the benchmark try an operator with, and how its error is judged.

The truth is the reference in float64 on the same inputs. An operator's error is held against
PyTorch's own in the same type, both in units in the last place (ULP).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from PACKAGE.error import absolute_error, ulp
from PACKAGE.libraries import has_gpu_part
from PACKAGE.reference import OPS

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# A short row; rows that are no multiple of a vector; some that are.
SHAPES = ((1, 5), (3, 33), (17, 256), (5, 1000))
ON_GPUS = ((512, 4096), (7, 40000))
PRODUCTS = ((1, 16), (3, 40), (70, 64))  # of ops whose time is that of their arithmetic


@dataclass(frozen=True)
class Case:
    """One operator with one choice of its options, in one direction, type and shape."""

    op: str
    options: dict
    direction: str
    dtype: str
    rows: int
    cols: int
    device: str

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        what = f"{self.op}({options})" if options else self.op
        return f"{what} {self.direction} {self.dtype} {self.rows} x {self.cols} {self.device}"

    def as_dict(self) -> dict:
        return asdict(self)

    @property
    def type(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def inputs(self, seed: int = 0) -> dict[str, Tensor]:
        return OPS[self.op].inputs(
            self.rows, self.cols, self.type, self.device, seed, without=self.options
        )

    def ours(self, **inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        return function_of(self.op)(**inputs, **self.options)

    def theirs(self, **inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        return OPS[self.op].function(**inputs, **self.options)


@dataclass(frozen=True)
class Judgement:
    """The largest errors of a case's results, and what is allowed, in ULP of each truth.

    ours, pytorchs: the largest. allowed: of PyTorch's error so many times, by result; `result` is
    the one with the least room.
    """

    ours: float
    pytorchs: float
    allowed: float
    result: str

    @property
    def holds(self) -> bool:
        return self.ours <= self.allowed


def function_of(op: str) -> Callable:
    """The package's function of this name."""
    return getattr(importlib.import_module(f"PACKAGE.ops.{op}"), op)


def devices() -> list[str]:
    """Where the package's operators run here."""
    for op in OPS:
        function_of(op)  # which opens its libraries
    return ["cpu", *["cuda"] * has_gpu_part()]


def cases(device: str) -> Iterator[Case]:
    """What is tried on a device."""
    for op in OPS.values():
        shapes = PRODUCTS if op.sizes or op.weights else SHAPES
        if device == "cuda":
            shapes = (*shapes, *ON_GPUS) if shapes is SHAPES else (*shapes, (512, 128))
        takes_floats = any(name not in op.limits for name in op.shapes)
        for options in op.options:
            for dtype in DTYPES:
                for rows, cols in shapes:
                    for direction in ("forward", "backward")[: 1 + takes_floats]:
                        name = str(dtype).removeprefix("torch.")
                        yield Case(op.name, options, direction, name, rows, cols, device)


def results(
    function: Callable, inputs: dict[str, Tensor], direction: str, arriving: list[Tensor]
) -> dict[str, Tensor]:
    """The outputs, or the gradients of all inputs from those that arrive at the outputs."""
    backward = direction == "backward"
    leaves = {
        name: it.detach().requires_grad_(backward and it.is_floating_point())
        for name, it in inputs.items()
    }
    outputs = function(**leaves)
    outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    if not backward:
        return {f"output {i}": y.detach() for i, y in enumerate(outputs)}
    ends = [y for y in outputs if y.is_floating_point()]
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    grads = torch.autograd.grad(ends, tuple(wanted.values()), arriving, materialize_grads=True)
    return {f"gradient of {name}": d for name, d in zip(wanted, grads, strict=True)}


def judged(case: Case, seed: int = 0) -> Judgement:
    """The error of a case, held against PyTorch's own.

    Ours may be twice PyTorch's, three times where sums run over rows. PyTorch's counts as no less
    than half an ULP of the largest truth, which is what rounding costs. For float64 there is no
    finer truth: PyTorch's error in float32 stands for its error there, and once more for that of
    the truth.
    """
    inputs = case.inputs(seed)
    arriving = _arriving(case, inputs, seed)
    got = results(case.ours, inputs, case.direction, arriving)
    truth = results(case.theirs, *_in(torch.float64, inputs, case, arriving))
    bar = torch.float32 if case.type == torch.float64 else case.type
    rough = results(case.theirs, *_in(bar, inputs, case, arriving))
    finer = _in(
        torch.float64, *_in(bar, inputs, case, arriving)[:1], case, [it.to(bar) for it in arriving]
    )
    fine = truth if bar == case.type else results(case.theirs, *finer)
    found = []
    for name, true in truth.items():
        over_rows = case.direction == "backward" and "rows" not in OPS[case.op].shapes.get(
            name.removeprefix("gradient of "), "rows"
        )
        most = (3 if over_rows else 2) + (case.type == torch.float64)
        one = _largest(ulp(_largest_of(true), case.type))
        ours = _largest(absolute_error(got[name], true)) / one
        pytorchs = _largest(absolute_error(rough[name], fine[name])) / _largest(
            ulp(_largest_of(fine[name]), bar)
        )
        found.append(Judgement(ours, pytorchs, most * max(pytorchs, 0.5), name))
    return max(found, key=lambda it: it.ours / it.allowed)


def _arriving(case: Case, inputs: dict[str, Tensor], seed: int) -> list[Tensor]:
    if case.direction != "backward":
        return []
    outputs = case.theirs(**inputs)
    outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    dice = torch.Generator(case.device).manual_seed(seed + 1)
    return [
        torch.randn(y.shape, generator=dice, device=case.device, dtype=y.dtype)
        for y in outputs
        if y.is_floating_point()
    ]


def _in(
    dtype: torch.dtype, inputs: dict[str, Tensor], case: Case, arriving: list[Tensor]
) -> tuple[dict[str, Tensor], str, list[Tensor]]:
    converted = {
        name: it.to(dtype) if it.is_floating_point() else it for name, it in inputs.items()
    }
    return converted, case.direction, [it.to(dtype) for it in arriving]


def _largest_of(t: Tensor) -> Tensor:
    return t.detach().double().abs().nan_to_num().max().reshape(1) if t.numel() else t.new_ones(1)


def _largest(t: Tensor) -> float:
    return t.max().item() if t.numel() else 0.0
