"""What the tests, the proof and the benchmark try an operator with, and how its error is judged.

The truth is the reference in float64 on the same inputs. An operator's error is held against
PyTorch's own in the same type, both in units in the last place (ULP).
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace

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
    """What is tried on a device: types that an operator takes, backward if it has a gradient."""
    for op in OPS.values():
        shapes = PRODUCTS if op.sizes or op.weights else SHAPES
        if device == "cuda":
            shapes = (*shapes, *ON_GPUS) if shapes is SHAPES else (*shapes, (512, 128))
        for options in op.options:
            for dtype in DTYPES:
                least = Case(op.name, options, "", _name(dtype), *shapes[0], device)
                directions = _directions(least)
                for rows, cols in shapes:
                    for direction in directions:
                        yield replace(least, direction=direction, rows=rows, cols=cols)


def first_case(op: str, device: str, rows: int, cols: int) -> Case:
    """Forward, with the first of the options, in float32 or whatever else the operator takes."""
    options = OPS[op].options[0]
    tried = (torch.float32, *DTYPES)
    every = [Case(op, options, "forward", _name(dtype), rows, cols, device) for dtype in tried]
    return next((case for case in every if _directions(case)), every[0])


def has_gradient(case: Case) -> bool:
    return "backward" in _directions(case)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _directions(case: Case) -> tuple[str, ...]:
    """What a call like this has: none where it refuses the type, no backward without a gradient."""
    inputs = {name: it.requires_grad_(it.is_floating_point()) for name, it in case.inputs().items()}
    try:
        outputs = case.ours(**inputs)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return ()
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    return ("forward", "backward")[: 1 + any(map(_is_differentiable, outputs))]


def _is_differentiable(y: Tensor) -> bool:
    """Whether a gradient is known: PyTorch marks what lacks one by a node that only warns."""
    return y.grad_fn is not None and not y.grad_fn.name().endswith("WarnNotImplemented")


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


@dataclass
class _Draws:
    """Largest errors of one result, draw by draw: ours, PyTorch's, and the truth they are of."""

    dtype: torch.dtype
    allowed: int  # times PyTorch's
    ours: list[float] = field(default_factory=list)
    pytorchs: list[float] = field(default_factory=list)
    truth: list[float] = field(default_factory=list)

    def judgement(self, name: str) -> Judgement:
        """Of all draws, each in ULP of its largest truth: or of the median draw's, where digits
        cancelled and left less, for there any error is divided by a number as small as you like."""
        middle = statistics.median(self.truth)
        units = ulp(torch.tensor([max(it, middle) for it in self.truth]).double(), self.dtype)
        ours = (torch.tensor(self.ours).double() / units).max().item()
        pytorchs = (torch.tensor(self.pytorchs).double() / units).max().item()
        return Judgement(ours, pytorchs, self.allowed * max(pytorchs, 0.5), name)


NUMBERS = 30  # of each result that a judgement needs: the largest of a few errors is luck
NUMBERS_TO_FAIL = 300  # numbers and rows that an unfavourable one needs


def judged(case: Case) -> Judgement:
    """The error of a case, held against PyTorch's own: the result with the least room.

    Ours may be twice PyTorch's, three times where sums run over rows. PyTorch's counts as no less
    than half an ULP of the largest truth, which is what rounding costs. For float64 there is no
    finer truth: PyTorch's error in float32, scaled, stands for its error there, and once more for
    that of the truth.
    """
    draws: dict[str, _Draws] = {}
    numbers = seed = 0
    while True:
        smallest = _draw(case, seed, draws)
        numbers, seed = numbers + smallest, seed + 1
        found = [each.judgement(name) for name, each in draws.items()]
        enough = min(numbers, case.rows * seed) >= NUMBERS_TO_FAIL or all(it.holds for it in found)
        if smallest == 0 or (numbers >= NUMBERS and enough):
            return max(found, key=lambda it: it.ours / it.allowed)


def _draw(case: Case, seed: int, draws: dict[str, _Draws]) -> int:
    """One more draw of inputs; how many numbers the smallest of the results has."""
    inputs = case.inputs(seed)
    arriving = _arriving(case, inputs, seed)
    got = results(case.ours, inputs, case.direction, arriving)
    truth = _truth(case, inputs, arriving, torch.float64)
    bar_type = torch.float32 if case.type == torch.float64 else case.type
    rough = {name: _to(it, bar_type) for name, it in inputs.items()}
    rough_arriving = [it.to(bar_type) for it in arriving]
    bar = _truth(case, rough, rough_arriving, bar_type)
    bar_truth = _truth(case, rough, rough_arriving, torch.float64)
    scale = torch.finfo(case.type).eps / torch.finfo(bar_type).eps
    for name, true in truth.items():
        over_rows = case.direction == "backward" and "rows" not in OPS[case.op].shapes.get(
            name.removeprefix("gradient of "), "rows"
        )
        allowed = (3 if over_rows else 2) + (case.type == torch.float64)
        of_result = draws.setdefault(name, _Draws(case.type, allowed))
        of_result.ours.append(_largest(absolute_error(got[name], true)))
        of_result.pytorchs.append(scale * _largest(absolute_error(bar[name], bar_truth[name])))
        of_result.truth.append(_largest(true.double().abs().nan_to_num(posinf=0.0)))
    return min(true.numel() for true in truth.values())


def _truth(
    case: Case, inputs: dict[str, Tensor], arriving: list[Tensor], dtype: torch.dtype
) -> dict[str, Tensor]:
    """The reference's results in a type."""
    converted = {name: _to(it, dtype) for name, it in inputs.items()}
    return results(case.theirs, converted, case.direction, [it.to(dtype) for it in arriving])


def _arriving(case: Case, inputs: dict[str, Tensor], seed: int) -> list[Tensor]:
    """The gradients that arrive at the outputs."""
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


def _to(t: Tensor, dtype: torch.dtype) -> Tensor:
    return t.to(dtype) if t.is_floating_point() else t


def _largest(t: Tensor) -> float:
    return t.max().item() if t.numel() else 0.0
