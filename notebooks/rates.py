"""Operations per second and the GPU's clock, for the chapters on matrix products."""

import math
import statistics
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch

import jitload
import lab
from lab.measure import nvml
from lab.measure.clocks import Watch, shared_text

SECONDS = 0.5  # of calls that count
WARM_UP = 0.25  # of as many calls before them, after which the clock is that of a busy GPU
MOST = 2000  # calls


class Rate(NamedTuple):
    """10^12 operations per second, and the clock in MHz; both are NaN without a GPU."""

    tflops: float
    mhz: float


def rate(call: Callable[[], object], operations: int) -> Rate:
    """The rate at which `call()` does so many operations (cold L2), and the clock of these calls.

    The GPU counts the clock: the cycles of its multiprocessors during the calls, divided by the
    time in which they passed. NVML reads it at single moments, also between the calls. A throttled
    GPU needs no warning, because its clock stands beside the rate.
    """
    if jitload.device().type != "cuda":
        call()
        return Rate(math.nan, math.nan)
    call()  # the first call may build a kernel
    seconds = min(_clocked(call, 3)[0])
    calls = min(max(int(SECONDS / seconds), 5), MOST)
    with Watch() as watch:
        times, mhz = _clocked(call, calls, math.ceil(WARM_UP * calls))
    if shared := shared_text([watch.held]):
        warnings.warn(lab.SharedWarning(shared), stacklevel=2)
    return Rate(operations / statistics.median(times) / 1e12, mhz)


def _clocked(
    call: Callable[[], object], calls: int, uncounted: int = 0
) -> tuple[list[float], float]:
    """The seconds of each call, each after a flush of the L2 cache, and the average clock in MHz.

    uncounted: calls before the others.
    """
    stamp = lab.ladder("clocks").stamp
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    flush = torch.empty(4 * gpu.L2_cache_size, dtype=torch.uint8, device="cuda")
    every = uncounted + calls
    shape = every, 2, gpu.multi_processor_count, 2  # before and after a call: time and cycles
    log = torch.zeros(shape, dtype=torch.int64, device="cuda")
    events = []
    for before, after in log:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        stamp(before, gpu.multi_processor_count)
        start.record()
        call()
        stop.record()
        stamp(after, gpu.multi_processor_count)
        events.append((start, stop))
    torch.cuda.synchronize()
    log = log[uncounted:]
    both = (log != 0).all(-1).all(1)  # multiprocessors with both stamps of a call
    nanoseconds, cycles = (log[:, 1] - log[:, 0])[both].sum(0).tolist()
    times = [1e-3 * start.elapsed_time(stop) for start, stop in events[uncounted:]]
    return times, 1e3 * cycles / nanoseconds


def gpu_clock(which: str = "clocks.sm") -> float:
    """The multiprocessors' clock in MHz: the current one, or with "clocks.max.sm" the highest.

    NaN if NVIDIA's management library does not tell it.
    """
    gpu = nvml.gpu()
    mhz = gpu and (gpu.highest_sm_mhz() if which == "clocks.max.sm" else gpu.sm_mhz())
    return math.nan if mhz is None else mhz
