"""Operations a second, and the clock that the GPU had: for the chapters on matrix products."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jitload
import lab
from lab.measure import nvml

SECONDS = 0.5  # of calls, after which the clock is that of a GPU at work


class Rate(NamedTuple):
    """10^12 operations a second, and MHz; both NaN without a GPU, which has no such clock."""

    tflops: float
    mhz: float


def rate(call: Callable[[], object], operations: int) -> Rate:
    """How fast `call()` does so many operations, cold L2, and the clock that held meanwhile."""
    if jitload.device().type != "cuda":
        call()
        return Rate(math.nan, math.nan)
    timing = lab.time_call(call, seconds=SECONDS)
    return Rate(operations / timing.median / 1e12, timing.held.mhz if timing.held else math.nan)


def gpu_clock(which: str = "clocks.sm") -> float:
    """The clock of the multiprocessors in MHz: now, or with "clocks.max.sm" the highest.

    NaN where NVIDIA's management library does not say it.
    """
    gpu = nvml.gpu()
    mhz = gpu and (gpu.highest_sm_mhz() if which == "clocks.max.sm" else gpu.sm_mhz())
    return math.nan if mhz is None else mhz
