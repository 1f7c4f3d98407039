"""What is followed: an op of the project, or a call of the user's. Its process loads, measures and
checks it.
"""

from __future__ import annotations

import importlib
import math
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

import jitload
import reference
from lab.checker.run import check
from lab.measure import arguments
from lab.measure.calls import measure_calls
from lab.measure.case import Case
from lab.measure.clocks import disturbances
from lab.measure.error import Error
from lab.measure.timing import copy_bandwidth, take_time
from lab.rivals.implementation import ours
from lab.watcher.checking import checked_of
from lab.watcher.launched import launched
from lab.watcher.result import Checked, Measured, Use
from lab.watcher.settings import Settings

REFERENCE = Path(reference.__file__)


@dataclass(frozen=True)
class OpSubject:
    """An op of reference.py, in its process; the case that was measured last is kept there."""

    name: str

    @property
    def key(self) -> object:
        """What has one history."""
        return self.name

    @property
    def modules(self) -> list[Path]:
        """The Python files that count: where one changes, a new process imports them."""
        return [REFERENCE, jitload.KERNELS / f"{self.name}.py"]

    def recipes(self) -> list[Any]:
        """What decides its builds, before any is opened."""
        return [jitload.recipe_of([self.name])]

    def load(self) -> list[Any]:
        """Load its kernels as their files are now, and return the recipes of their builds."""
        self._module()
        for kernel in jitload.loaded():
            kernel.reload()
        return [kernel.recipe for kernel in jitload.loaded()]

    def versions(self) -> tuple[str, ...]:
        return self._module().VERSIONS

    def measure(self, settings: Settings) -> Measured:
        case = _case(self.name, settings, jitload.device())
        implementation = ours(case.op, arguments.version(case.op, settings.version))
        measurement = case.measure(implementation, timed=True)
        timing = measurement.timing
        return Measured(
            measurement.error,
            case.torch_error,
            1e6 * timing.median,
            timing.clock,
            100 * timing.gb_per_s(measurement.bytes) / _copy_gb_per_s(),
            disturbances([timing.held]),
        )

    def launched(self, settings: Settings) -> tuple[Use, ...]:
        """The kernels that the call launches on a GPU."""
        case = _case(self.name, settings, jitload.device())
        step = case.step(ours(case.op, arguments.version(case.op, settings.version)))
        return launched(step, jitload.loaded())

    def instrument(self) -> None:
        """Build its own kernel for the checker; another is built when it is called."""
        self._module().kernel.instrumented()

    def check(self, wanted: Settings, seconds: float) -> Checked:
        settings = wanted.for_check()
        case = _case(self.name, settings, torch.device("cpu"))
        implementation = ours(case.op, arguments.version(case.op, settings.version))
        if not settings.backward:
            call = partial(implementation.function, **case.inputs, **settings.options)
        elif jitload.default_target() == "cpu":
            call = case.step(implementation)
        else:  # the forward pass has to run under the checker as well
            call = case.both(implementation)
        what = "" if settings == wanted else "{} x {}".format(*settings.shape)
        return checked_of(check(call, seconds=seconds), what)

    def _module(self) -> Any:
        return importlib.import_module(f"kernels.{self.name}")


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
            copy_gb_per_s=_copy_gb_per_s(),
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
        call, inputs, _ = self._unpickled()
        ordered, named = (inputs, {}) if not isinstance(inputs, dict) else ((), inputs)
        report = check(call, *ordered, seconds=seconds, **named)
        return checked_of(report, "")

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


def _case(name: str, settings: Settings, device: torch.device) -> Case:
    """The case of these settings. The newest two are kept, for their truth takes long: what is
    measured, and what is checked.
    """
    key = name, settings, device
    for known, case in _kept:
        if known == key:
            return case
    dtype = arguments.DTYPES[settings.dtype]
    options, backward = settings.options, settings.backward
    case = Case(reference.OPS[name], settings.shape, dtype, device, options, backward)
    _kept.append((key, case))
    return case


_kept: deque[tuple[object, Case]] = deque(maxlen=2)


@cache
def _copy_gb_per_s() -> float:
    """Of this GPU, measured once in a process; NaN without one."""
    return copy_bandwidth() if jitload.device().type == "cuda" else math.nan
