"""An op of the project as what is followed: its process loads, measures and checks it."""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import jitload
from lab.checker.report import Report
from lab.checker.run import check
from lab.measure import arguments
from lab.measure.case import Case
from lab.measure.clocks import disturbances
from lab.measure.timing import SIMULATOR_CLOCK
from lab.predictor.run import predict
from lab.rivals.implementation import ours
from lab.watcher.checking import checked_of, predicted_of
from lab.watcher.copy_rate import copy_gb_per_s
from lab.watcher.launched import launched
from lab.watcher.result import Checked, Measured, Predicted, Use
from lab.watcher.settings import Settings

REFERENCE = jitload.KERNELS.parent / "reference.py"


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
        return [REFERENCE, jitload.op_file(self.name, ".py")]

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
        measurement = case.measure(implementation, timed=jitload.device().type == "cuda")
        timing = measurement.timing
        if timing is None:
            nan = math.nan
            return Measured(measurement.error, case.torch_error, nan, SIMULATOR_CLOCK, nan)
        return Measured(
            measurement.error,
            case.torch_error,
            1e6 * timing.median,
            timing.clock,
            100 * timing.gb_per_s(measurement.bytes) / copy_gb_per_s(),
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
        what = "" if settings == wanted else "{} x {}".format(*settings.shape)
        return checked_of(self.report(settings, seconds=seconds), what)

    def predict(self, settings: Settings, seconds: float) -> Predicted:
        """On the whole shape, with machine code where the cache has it."""
        return predicted_of(predict(self._call(settings), seconds=seconds, compile=None))

    def report(self, settings: Settings, **options: Any) -> Report:
        """What `lab.check`, with these options, says of it."""
        return check(self._call(settings), **options)

    def _call(self, settings: Settings) -> Callable[[], object]:
        """What is checked: on the CPU, and where there is a GPU with its forward pass."""
        case = _case(self.name, settings, torch.device("cpu"))
        implementation = ours(case.op, arguments.version(case.op, settings.version))
        if not settings.backward:
            return partial(implementation.function, **case.inputs, **settings.options)
        if jitload.default_target() == "cpu":
            return case.step(implementation)
        return case.both(implementation)

    def _module(self) -> Any:
        return importlib.import_module(f"kernels.{self.name}")


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
    case = Case(arguments.an_op(name), settings.shape, dtype, device, options, backward)
    _kept.append((key, case))
    return case


_kept: deque[tuple[object, Case]] = deque(maxlen=2)
