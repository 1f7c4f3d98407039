"""Times one cell at a time while other processes compile the rivals of other cells.

torch.compile takes seconds for a cell, mostly on the host: it generates code, compiles it for
several launches, and times each of these on the GPU. So several processes measure cells. A lock
guards the GPU: a process releases it while it compiles, and takes it again for each launch that
torch.compile times. So every timing runs alone on the GPU.
"""

import contextlib
import fcntl
import functools
import importlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import torch


class OutOfTimeError(BaseException):
    """The deadline passed while a rival was compiled. (Compilers would catch an Exception.)"""


class _Gpu:
    """The lock of a process: a file, because the system releases it if the process dies."""

    file: IO[str] | None = None
    deadline = 0.0
    holds = False

    def take(self) -> None:
        if self.file and not self.holds:
            fcntl.flock(self.file, fcntl.LOCK_EX)
            self.holds = True

    def give(self) -> None:
        if self.file and self.holds:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            fcntl.flock(self.file, fcntl.LOCK_UN)
            self.holds = False


_gpu = _Gpu()


def share(lock: Path) -> None:
    """From now on, processes with the same lock take turns on the GPU."""
    _gpu.file = lock.open("w")
    for name in ("benchmark", "benchmark_gpu"):
        _tune_alone(name)


@contextlib.contextmanager
def alone(deadline: float) -> Iterator[None]:
    """Hold the GPU alone, except inside `compiling`, which ends at the deadline."""
    _gpu.take()
    _gpu.deadline = deadline
    try:
        yield
    finally:
        _gpu.give()


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Let others use the GPU meanwhile. Raises OutOfTimeError at the deadline."""
    if not _gpu.holds:
        yield
        return

    def stop(*_: object) -> None:
        raise OutOfTimeError

    _gpu.give()
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(_gpu.deadline - time.time(), 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        _gpu.take()


def _tune_alone(name: str) -> None:
    """Make torch.compile hold the lock while it times a launch."""
    benchmarker = importlib.import_module("torch._inductor.runtime.benchmarking").benchmarker
    times: Callable[..., object] = getattr(benchmarker, name)

    @functools.wraps(times)
    def alone_times(*args: object, **options: object) -> object:
        if _gpu.holds:
            return times(*args, **options)
        _gpu.take()
        try:
            return times(*args, **options)
        finally:
            _gpu.give()

    setattr(benchmarker, name, alone_times)
