"""Operations a second, and the clock that the GPU had: for the chapters on matrix products."""

import math
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import torch

import jitload
import lab

SECONDS = 0.5  # of calls, after which the clock is that of a GPU at work
MOST = 500  # calls, of which the queue of a stream has room for more


class Rate(NamedTuple):
    """10^12 operations a second, and MHz; both NaN without a GPU, which has no such clock."""

    tflops: float
    mhz: float


def rate(call: Callable[[], object], operations: int) -> Rate:
    """How fast `call()` does so many operations, cold L2; the clock while more calls run."""
    if jitload.device().type != "cuda":
        call()
        return Rate(math.nan, math.nan)
    seconds = lab.time_call(call).median
    for _ in range(min(MOST, math.ceil(SECONDS / seconds))):
        call()
    mhz = gpu_clock()
    torch.cuda.synchronize()
    return Rate(operations / seconds / 1e12, mhz)


def gpu_clock(which: str = "clocks.sm") -> float:
    """The clock of the multiprocessors in MHz: now, or with "clocks.max.sm" the highest."""
    command = ["nvidia-smi", f"--query-gpu={which}", "--format=csv,noheader,nounits", "--id=0"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
