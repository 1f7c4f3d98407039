"""A call of the user's as what is followed: its process unpickles, measures and checks it."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jitload
from lab.checker.run import check
from lab.measure.calls import measure_calls
from lab.measure.clocks import disturbances
from lab.measure.error import Error
from lab.measure.timing import take_time
from lab.predictor.run import predict
from lab.watcher.checking import checked_of, predicted_of
from lab.watcher.copy_rate import copy_gb_per_s
from lab.watcher.launched import launched
from lab.watcher.result import Checked, Measured, Predicted, Use
from lab.watcher.settings import Settings


@dataclass(frozen=True)
class CallSubject:
    """A call of the user's, pickled with what it uses; unpickled where it runs.

    name: in what is shown. recipe: of the kernel that it calls.
    """

    name: str
    recipe: Any
    pickled: bytes
    backward: bool

    @property
    def key(self) -> object:
        return self.recipe.sources

    @property
    def modules(self) -> list[Path]:
        return []

    def recipes(self) -> list[Any]:
        return [self.recipe]

    def load(self) -> list[Any]:
        """Load the kernels that the call uses, and return their recipes."""
        self._unpickled()
        for kernel in jitload.loaded():
            kernel.reload()
        return [kernel.recipe for kernel in jitload.loaded()]

    def versions(self) -> tuple[str, ...]:
        return ()

    def measure(self, settings: Settings | None) -> Measured:
        """With a truth as `lab.compare_calls` does, whose "torch" it is; else the time alone."""
        call, inputs, truth = self._unpickled()
        if truth is None:
            timing = take_time(_with(call, inputs), jitload.device())
            disturbed = disturbances([timing.held])
            return Measured(None, None, 1e6 * timing.median, timing.clock, math.nan, disturbed)
        mine, disturbed = self._row(call)
        costs = mine["time_us"], mine["clock"], mine["percent_of_copy"]
        return Measured(_error_in(mine), _torch_error_of(self), *costs, disturbed)

    def torch_error(self) -> Error:
        """The truth's own error in the type of the inputs."""
        _, _, truth = self._unpickled()
        row, _ = self._row(truth)
        return _error_in(row)

    def _row(self, call: Callable) -> tuple[dict[str, Any], str]:
        """What `lab.compare_calls` says of a function, and how the GPU was disturbed."""
        _, inputs, truth = self._unpickled()
        table = measure_calls(
            {"mine": call},
            inputs=inputs,
            truth=truth,
            outputs=(),
            backward=self.backward,
            bytes=None,
            seed=0,
            copy_gb_per_s=copy_gb_per_s(),
            counted=False,
        )
        return table.to_dict("records")[-1], table.attrs["disturbances"]  # backward comes last

    def launched(self, settings: Settings | None) -> tuple[Use, ...]:
        """The kernels that the call launches on a GPU; the forward pass alone."""
        call, inputs, _ = self._unpickled()
        return launched(_with(call, inputs), jitload.loaded())

    def instrument(self) -> None:
        """Build the kernel for the checker; another is built when it is called."""
        jitload.handle_for(self.recipe).instrumented()

    def check(self, settings: Settings | None, seconds: float) -> Checked:
        """The forward pass alone: what backward runs, is a call of its own."""
        call, ordered, named = self._call()
        return checked_of(check(call, *ordered, seconds=seconds, **named), "")

    def predict(self, settings: Settings | None, seconds: float) -> Predicted:
        """The forward pass alone, with machine code where the cache has it."""
        call, ordered, named = self._call()
        return predicted_of(predict(call, *ordered, seconds=seconds, compile=None, **named))

    def _call(self) -> tuple[Callable, tuple, dict[str, Any]]:
        call, inputs, _ = self._unpickled()
        return (call, (), inputs) if isinstance(inputs, dict) else (call, inputs, {})

    def _unpickled(self) -> tuple[Callable, Any, Callable | None]:
        if self not in _calls:
            _calls[self] = pickle.loads(self.pickled)
        return _calls[self]


@cache
def _torch_error_of(subject: CallSubject) -> Error:
    """It is the same for every version of the kernel."""
    return subject.torch_error()


def _error_in(row: dict[str, float]) -> Error:
    return Error(row["max_error"], row["mean_error"], row["max_ulp"], row["mean_ulp"])


_calls: dict[CallSubject, tuple[Callable, Any, Callable | None]] = {}


def _with(call: Callable, inputs: Any) -> Callable[[], object]:
    if isinstance(inputs, dict):
        return partial(call, **inputs)
    return partial(call, *inputs)
