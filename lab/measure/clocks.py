"""The clock that a GPU had while something was measured, and who else used it meanwhile.

A figure that was taken on a throttled or a shared GPU comes with a warning.
"""

import functools
import operator
import statistics
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

import torch

from lab.measure import nvml
from lab.measure.nvml import Reason

PERIOD = 0.01  # seconds between two readings; NVML's own numbers are hardly fresher
LEVEL = 0.98  # part of the highest clock; above it, nothing counts as throttled, whatever NVML says

# Reasons that lower a clock against the user's will; idling and a set clock do not.
THROTTLES = {
    Reason.SW_POWER_CAP: "the power cap",
    Reason.SW_THERMAL_SLOWDOWN: "the driver's limit of temperature",
    Reason.HW_THERMAL_SLOWDOWN: "the hardware's limit of temperature",
    Reason.HW_POWER_BRAKE_SLOWDOWN: "the power brake of the machine",
    Reason.HW_SLOWDOWN: "a slowdown by the hardware",
    Reason.SYNC_BOOST: "the group of GPUs that share a clock",
}


class ThrottledWarning(UserWarning):
    """The GPU lowered its clock during a measurement."""


class SharedWarning(UserWarning):
    """Another process used the GPU during a measurement."""


class Reading(NamedTuple):
    """One look at the GPU: the clock of its multiprocessors in MHz, its power in watts, and why
    the clock is not higher; None for what NVML did not say.
    """

    mhz: int
    watts: float | None
    reasons: Reason | None


@dataclass(frozen=True)
class Held:
    """The clock that held during a measurement.

    mhz, watts: of the multiprocessors and of the board, medians of the readings.
    highest_mhz, highest_watts: the most that the GPU can have, and that its power cap allows.
    reasons: all that NVML gave for a clock that was not higher; None where it gave nothing.
    others: how many other processes the GPU worked for; None where NVML does not say.
    """

    mhz: float
    highest_mhz: int | None = None
    watts: float | None = None
    highest_watts: float | None = None
    reasons: Reason | None = None
    others: int | None = None

    @property
    def throttles(self) -> list[str]:
        """What kept the clock below its highest, in words; [] if nothing did."""
        if self.highest_mhz is None or self.mhz >= LEVEL * self.highest_mhz:
            return []
        return [text for reason, text in THROTTLES.items() if reason in (self.reasons or Reason(0))]

    @property
    def company(self) -> str:
        """Who else used the GPU, in words; "" for nobody."""
        if not self.others:
            return ""
        return "1 other process" if self.others == 1 else f"{self.others} other processes"

    def __str__(self) -> str:
        """ "1410 of 1980 MHz: the power cap held the clock down (698 of 700 W)" """
        highest = f" of {self.highest_mhz}" if self.highest_mhz else ""
        text = f"{self.mhz:.0f}{highest} MHz"
        if not self.throttles:
            return text
        text += f": {' and '.join(self.throttles)} held the clock down"
        if self.watts is None or self.highest_watts is None:
            return text
        return f"{text} ({self.watts:.0f} of {self.highest_watts:.0f} W)"


class Watch:
    """Reads a GPU's clock while the block below it runs, from a thread of its own:

        with Watch(device) as watch:
            ...
        watch.held  # None where NVML says nothing, and on the CPU

    The block has to wait for the GPU's work, because an idle GPU has another clock. If several
    blocks use one Watch, all readings count.
    """

    def __init__(self, device: torch.device | str | None = "cuda") -> None:
        device = torch.device("cuda" if device is None else device)
        self._gpu = nvml.gpu(device) if device.type == "cuda" else None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._readings: list[Reading] = []
        self._since = time.time()

    def __enter__(self) -> "Watch":
        if self._gpu is not None:
            self._over.clear()
            self._thread = threading.Thread(target=self._read_on, name="lab clocks", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._over.set()
            self._thread.join()

    @property
    def held(self) -> Held | None:
        """The summary of the readings, without those of an idle GPU if there are others."""
        busy = [it for it in self._readings if not it.reasons or Reason.GPU_IDLE not in it.reasons]
        readings = busy or self._readings
        if not readings:
            return None
        watts = [it.watts for it in readings if it.watts is not None]
        reasons = [it.reasons for it in readings if it.reasons is not None]
        return Held(
            statistics.median(it.mhz for it in readings),
            self._gpu.highest_sm_mhz(),
            statistics.median(watts) if watts else None,
            self._gpu.highest_watts(),
            functools.reduce(operator.or_, reasons) if reasons else None,
            self._gpu.others(self._since),
        )

    def _read_on(self) -> None:
        while not self._over.wait(PERIOD):
            self._read()
        if not self._readings:  # the block was shorter than that
            self._read()

    def _read(self) -> None:
        if (mhz := self._gpu.sm_mhz()) is not None:
            self._readings.append(Reading(mhz, self._gpu.watts(), self._gpu.reasons()))


def warn_if_disturbed(held: Iterable[Held | None], stacklevel: int = 2) -> None:
    """Warns of a throttled GPU, and of a shared one: once each for several measurements.

    stacklevel: 1 for the line that calls this function, 2 for the one that calls its caller.
    """
    every = list(held)
    for kind, text in (
        (ThrottledWarning, throttled_text(every)),
        (SharedWarning, shared_text(every)),
    ):
        if text:
            warnings.warn(kind(text), stacklevel=stacklevel + 1)


def throttled_text(held: Sequence[Held | None]) -> str:
    """What lowered the clock in the measurement with the lowest one; "" if nothing did."""
    throttled = [it for it in held if it is not None and it.throttles]
    if not throttled:
        return ""
    lowest = min(throttled, key=lambda it: it.mhz)
    several = f" ({len(throttled)} of {len(held)} measurements, this the lowest clock)"
    return f"measured at {lowest}{several if len(held) > 1 else ''}"


def shared_text(held: Sequence[Held | None]) -> str:
    """The most other processes that used the GPU during a measurement, in words; "" for none."""
    shared = [it for it in held if it is not None and it.others]
    if not shared:
        return ""
    most = max(shared, key=lambda it: it.others)
    several = f" ({len(shared)} of {len(held)} measurements, this the most)"
    return f"measured while {most.company} used the GPU{several if len(held) > 1 else ''}"


def disturbances(held: Iterable[Held | None]) -> str:
    """Both texts in one, for the caption of a figure; "" if there were no disturbances."""
    every = list(held)
    return "; ".join(filter(None, (throttled_text(every), shared_text(every))))
