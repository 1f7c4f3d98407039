"""One op on one set of inputs, on which its implementations are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lab.measure.arguments import dtype_name
from lab.measure.error import Error, summarize
from lab.measure.timing import Timing, bytes_moved, take_time
from lab.measure.without_gpu import fetched, predicted
from lab.predictor.report import Prediction
from lab.rivals.implementation import Implementation
from lab.rivals.pytorch import eager

if TYPE_CHECKING:
    from reference import Op

Results = Tensor | tuple[Tensor, ...]
Step = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Measurement:
    """One implementation on one case: error, least bytes to move, time if it was taken, and on
    the simulator the bytes fetched and the time predicted for a GPU."""

    error: Error
    bytes: int
    timing: Timing | None
    fetched: float
    predicted: Prediction | None


class Case:
    """An op in one direction, on random inputs of one shape and type.

    Forward: the op's outputs, without autograd. Backward: the gradients of all differentiable
    inputs, from one random grad_output for each output, which every implementation and the truth
    share. An option takes the place of the input of its name, as in {"scale": 2.0}.

    inputs: used in place of random ones of that shape; those that require a gradient get one.

    arriving: the gradients of the outputs (grad_output).
    """

    def __init__(
        self,
        op: Op,
        shape: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
        options: dict[str, object],
        backward: bool = False,
        seed: int = 0,
        inputs: dict[str, Tensor] | None = None,
    ) -> None:
        self.op, self.shape, self.dtype, self.device = op, shape, dtype, device
        self.options, self.backward = options, backward
        if inputs is None:
            inputs = op.inputs(*shape, dtype, device, seed, requires_grad=backward, without=options)
        self.inputs = inputs
        self.arriving: tuple[Tensor, ...] = ()
        if backward:
            generator = torch.Generator(device).manual_seed(seed + 1)
            self.arriving = tuple(
                torch.randn(y.shape, generator=generator, device=device, dtype=y.dtype)
                for y in _differentiable(tensors_in(op.function(**self.inputs, **options)))
            )

    def __str__(self) -> str:
        rows, cols = self.shape
        return f"{self.op.name} {self.direction} {dtype_name(self.dtype)} {rows} x {cols}"

    @property
    def direction(self) -> str:
        """ "forward" or "backward"."""
        return "backward" if self.backward else "forward"

    @cached_property
    def truth(self) -> tuple[Tensor, ...]:
        """The reference in float64 on the same inputs: its outputs, or its gradients."""
        inputs = {name: in_float64(value) for name, value in self.inputs.items()}
        grad_outputs = tuple(in_float64(grad) for grad in self.arriving)
        return self._step(self.op.function, inputs, grad_outputs)()

    @property
    def names(self) -> list[str]:
        """The names of the results, in order: "output", or "gradient of NAME"."""
        if self.backward:
            inputs = self.inputs.items()
            return [f"gradient of {name}" for name, value in inputs if value.requires_grad]
        count = len(self.truth)
        return ["output"] if count == 1 else [f"output {index}" for index in range(count)]

    def step(self, implementation: Implementation) -> Step:
        """The function to measure: it takes no arguments and computes the results.

        For backward, the forward pass runs here, once, and the step is the backward pass alone; an
        implementation without such a pass raises NotImplementedError.
        """
        if self.backward and implementation.gradients_in_forward:
            raise NotImplementedError(
                f"{implementation.label}'s {self.op.name} has no backward of its own"
            )
        return self._step(implementation.function, self.inputs, self.arriving)

    def both(self, implementation: Implementation) -> Step:
        """As `step`, but the forward pass is a part of it."""
        return lambda: self._step(implementation.function, self.inputs, self.arriving)()

    def start(
        self, implementation: Implementation, both: bool = False
    ) -> tuple[Step, tuple[Tensor, ...]]:
        """The step, after its first call, and the results to judge.

        both: whether the step includes both passes.
        """
        with implementation.first_call():
            step = self.both(implementation) if both else self.step(implementation)
            results = step()
        if implementation.judged:
            results = self._step(implementation.judged, self.inputs, self.arriving)()
        return step, results

    def measure(self, implementation: Implementation, timed: bool) -> Measurement:
        """Error against the truth, bytes that the step has to move and, if `timed`, its time."""
        step, results = self.start(implementation)
        timing = take_time(step, self.device) if timed else None
        return Measurement(
            summarize(results, self.truth),
            bytes_moved(self.reads, results),
            timing,
            fetched(step, timing),
            predicted(step, timing),
        )

    @cached_property
    def torch_error(self) -> Error:
        """PyTorch's own error: the error of the reference in the inputs' type."""
        return self.measure(eager(self.op), timed=False).error

    @cached_property
    def reads(self) -> list[Tensor]:
        """The tensors that the step has to read: forward the inputs, backward also grad_output.

        If autograd saves nothing in the forward pass (a sum), backward reads grad_output alone. If
        it saves an output (the sum of x and a residual), that replaces the inputs of its size that
        it does not save.
        """
        inputs = list(self.inputs.values())
        if not self.backward:
            return inputs
        kept: set[int] = set()

        def keep(tensor: Tensor) -> Tensor:
            kept.add(tensor.data_ptr())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            outputs = tensors_in(self.op.function(**self.inputs, **self.options))
        if not kept:
            return list(self.arriving)
        instead = {y.shape: y for y in outputs if y.data_ptr() in kept}
        needed = [x if x.data_ptr() in kept else instead.get(x.shape, x) for x in inputs]
        return [*needed, *self.arriving]

    def _step(
        self, function: Callable, inputs: dict[str, Tensor], grad_outputs: tuple[Tensor, ...]
    ) -> Step:
        if not self.backward:
            return lambda: tensors_in(function(**inputs, **self.options))
        outputs = _differentiable(tensors_in(function(**inputs, **self.options)))
        wanted = [value for value in inputs.values() if value.requires_grad]
        return lambda: torch.autograd.grad(outputs, wanted, grad_outputs, retain_graph=True)


def tensors_in(result: Results) -> tuple[Tensor, ...]:
    """A result's tensors: the one, or all."""
    return (result,) if isinstance(result, Tensor) else tuple(result)


def _differentiable(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors that may have a gradient: not integers, such as labels or indices."""
    return tuple(tensor for tensor in tensors if tensor.is_floating_point())


def in_float64(value: Tensor) -> Tensor:
    """The same numbers in float64; integers (labels, indices) stay what they are."""
    if not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)
