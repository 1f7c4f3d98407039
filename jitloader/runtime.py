"""The simulator's runtime: one a process, opened before any kernel for the CPU, which needs it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

import simulator
from jitloader import stops
from jitloader.building import ensure
from jitloader.cache import Cache
from toolchain.code import Recipe

_take_error: Callable[[], bytes | None] | None = None


def recipe() -> Recipe:
    return Recipe(
        name="simulator",
        sources=(simulator.RUNTIME,),
        include=(simulator.INCLUDE,),
        flags=("-O2", "-fvisibility=hidden"),  # it marks what kernels call
        target="cpu",
        debug=False,
    )


def libraries() -> list[Path]:
    """What a program for the CPU needs opened before it, for all to use, in this order."""
    build = ensure(recipe())
    Cache.here().use(build.folder)
    return [build.library]


@functools.cache
def library() -> ctypes.CDLL:
    """The library on which kernels for the CPU run."""
    while True:
        build = ensure(recipe())
        Cache.here().use(build.folder)
        try:
            return ctypes.CDLL(str(build.library), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            if build.library.exists():
                raise  # else another process has just pruned it


def start() -> None:
    global _take_error
    if _take_error is None:
        stops.listen(library())
        _take_error = library().simulator_take_error
        _take_error.restype = ctypes.c_char_p


def check() -> None:
    """Raise what a kernel did wrong (a deadlock, a refused launch) and nobody asked about."""
    message = _take_error()
    if message:
        raise RuntimeError(message.decode(errors="replace"))


def simulated_launches() -> int:
    """How many kernels the simulator has launched in this process.

    Asked before a call and after it, this tells whether the call ran on the simulator.
    """
    if _take_error is None:  # nothing has been opened that could launch
        return 0
    launches = library().simulator_launches
    launches.restype = ctypes.c_uint64
    return launches()
