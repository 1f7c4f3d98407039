"""Operations per second and the GPU's clock, for the chapters on matrix products."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jitload
import lab
from lab.measure import nvml

SECONDS = 0.5  # of calls, after which the clock is that of a busy GPU


class Rate(NamedTuple):
    """10^12 operations per second, and the clock in MHz; both are NaN without a GPU."""

    tflops: float
    mhz: float


def rate(call: Callable[[], object], operations: int) -> Rate:
    """The rate at which `call()` does so many operations (cold L2), and the clock during it."""
    if jitload.device().type != "cuda":
        call()
        return Rate(math.nan, math.nan)
    timing = lab.time_call(call, seconds=SECONDS)
    return Rate(operations / timing.median / 1e12, timing.held.mhz if timing.held else math.nan)


def gpu_clock(which: str = "clocks.sm") -> float:
    """The multiprocessors' clock in MHz: the current one, or with "clocks.max.sm" the highest.

    NaN if NVIDIA's management library does not tell it.
    """
    gpu = nvml.gpu()
    mhz = gpu and (gpu.highest_sm_mhz() if which == "clocks.max.sm" else gpu.sm_mhz())
    return math.nan if mhz is None else mhz
