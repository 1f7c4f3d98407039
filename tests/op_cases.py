"""What the tests of the ops share: the ops by name, their versions, and the judgement of error."""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import jitload
import reference

DEVICE = jitload.device()
RESULTS = 30  # numbers of each kind that a judgement of error needs
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    """One op in one of its versions, with one choice of its options."""

    op: reference.Op
    version: str
    options: dict

    def __str__(self) -> str:
        options = "".join(f"-{name}={value}" for name, value in self.options.items())
        return f"{self.op.name}-{self.version}{options}"

    def ours(self, **inputs: Tensor) -> Tensor:
        function = getattr(module_of(self.op.name), self.op.name)
        return function(**inputs, **self.options, version=self.version)

    def theirs(self, **inputs: Tensor) -> Tensor:
        return self.op.function(**inputs, **self.options)

    def inputs(self, rows: int, cols: int, dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
        return self.op.inputs(rows, cols, dtype, DEVICE, seed)


def module_of(name: str):
    return importlib.import_module(f"kernels.{name}")


CASES = [
    Case(op, version, options)
    for op in reference.OPS.values()
    for version in module_of(op.name).VERSIONS
    for options in op.options
]
BEST = [case for case in CASES if case.version == module_of(case.op.name).VERSIONS[-1]]


def outcome(function: Callable[..., Tensor], inputs: dict[str, Tensor], grad: Tensor | None = None):
    """The result and every input's gradient, by name, with `grad` (default: ones) arriving."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in inputs.items()}
    y = function(**leaves)
    grad = torch.ones_like(y) if grad is None else grad
    grads = torch.autograd.grad(y, tuple(leaves.values()), grad)
    return {"y": y.detach()} | {f"d{name}": d for name, d in zip(leaves, grads, strict=True)}


def converted(tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}


def half_ulp(truth: Tensor, dtype: torch.dtype) -> float:
    """Half the distance between neighbours at the largest truth: what any rounding may cost."""
    largest = truth.abs().max().item() if truth.numel() else 0.0
    exponent = math.floor(math.log2(largest)) if largest > 0 else 0
    return 2.0**exponent * torch.finfo(dtype).eps / 2


def error(result: Tensor, truth: Tensor) -> float:
    assert result.shape == truth.shape
    return (result.double() - truth).abs().max().item() if truth.numel() else 0.0


def assert_as_good_as_pytorch(case: Case, draw: Callable[[int], dict[str, Tensor]]) -> None:
    """The largest error is at most k times PyTorch's own in the same type.

    draw: makes inputs from a seed. The largest of a few errors is luck, so there are draws until
    every result and gradient has given RESULTS numbers.

    Truth is reference.py in float64. k is 2, and 3 for gradients of vectors over the columns, which
    sum over all rows. PyTorch's error counts as no less than half an ULP of the largest truth, for
    that much any rounding costs.

    For float64 there is no finer truth. PyTorch's error in float32, scaled by the ratio of their
    precisions, stands for its error there, and also for that of the truth: so k is one more.
    """
    ours, bars, drawn, seed = {}, {}, 0, 0
    while drawn < RESULTS:
        inputs = draw(seed)
        dtype = inputs["x"].dtype
        bar_dtype = torch.float32 if dtype == torch.float64 else dtype
        scale = torch.finfo(dtype).eps / torch.finfo(bar_dtype).eps
        y = case.theirs(**inputs)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        grad = torch.randn(y.shape, device=DEVICE, generator=generator).to(dtype)
        got = outcome(case.ours, inputs, grad)
        truth = outcome(case.theirs, converted(inputs, torch.float64), grad.double())
        rough, rough_grad = converted(inputs, bar_dtype), grad.to(bar_dtype)
        bar = outcome(case.theirs, rough, rough_grad)
        bar_truth = outcome(case.theirs, converted(rough, torch.float64), rough_grad.double())
        for name in truth:
            assert got[name].dtype == dtype, name
            theirs = max(scale * error(bar[name], bar_truth[name]), half_ulp(truth[name], dtype))
            ours[name] = max(ours.get(name, 0.0), error(got[name], truth[name]))
            bars[name] = max(bars.get(name, 0.0), theirs)
        drawn += min(tensor.numel() for tensor in truth.values())
        seed += 1
    for name in ours:
        shape = case.op.shapes.get(name.removeprefix("d"), "")
        k = (3 if shape == "cols" else 2) + (dtype == torch.float64)
        assert ours[name] <= k * bars[name], (
            f"{name} is wrong by {ours[name]:.3g}; PyTorch by {bars[name]:.3g}, and {k} times that "
            "is allowed"
        )
