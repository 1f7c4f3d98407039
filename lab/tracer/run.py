"""See a kernel run, thread by thread, without a GPU.

    lab.trace(kernel.forward, x)                  # the first launch's block 0
    lab.trace(kernel.forward, x, block=(1, 2))    # another block
    lab.trace(kernel.forward, x, around=42)       # the steps around the first that runs line 42
    lab.trace(kernel.forward, x).save("forward.html")

The kernel is compiled once more without optimisation, with a call of the tracer at each line and
before each access to memory, and runs on the CPU's simulator. The lanes of a warp go on together as
long as they are at the same line; all warps go on at the same pace.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jitload
from lab.checker.captured import without_partial
from lab.checker.report import Report
from lab.checker.run import SECONDS, checked
from lab.tracer.record import Recorded, Recorder, Window
from lab.tracer.trace import Trace, index_of

STEPS = 1000


def trace(
    function: Callable,
    *args: object,
    block: int | tuple[int, ...] = 0,
    launch: int = 0,
    steps: int = STEPS,
    first: int = 0,
    around: int | None = None,
    seconds: float = SECONDS,
    **kwargs: object,
) -> Trace:
    """Call `function(*args, **kwargs)`, and record what one block of one launch does.

    function, args, kwargs: as of `lab.check`; tensors are copied.
    block: its number, or (x, y, z).
    launch: the position of the launch among those that the call makes, from 0.
    steps: how many are recorded; the rest of the block runs without a record.
    first: the number of the first of them.
    around: a line of the source; recorded are the steps around the first that runs it.
    seconds: that the kernels may take in all.

    Raises:
        CompileError: the kernel does not compile.
        ValueError: there is no such block or launch, or no thread of the block runs that line.
        Exception: what the function raised, unless a kernel was to blame for it.
        RuntimeError: no kernel ran, or the machine lacks what the tracer needs.
    """
    call = without_partial(function, args, kwargs)
    what = getattr(call[0], "__qualname__", None) or type(call[0]).__qualname__
    watching = partial(jitload.instrumented, trace=True)
    checks = partial(checked, what, call, watching, seconds=seconds, traffic=False)
    return traced(what, checks, block, Window(launch, 0, first, steps), around)


def traced(
    what: str,
    checks: Callable[..., Report],
    block: int | tuple[int, ...],
    window: Window,
    around: int | None = None,
) -> Trace:
    """As `trace`, of what `checks` runs: it is given what it is to tell of each build.

    The call is made once more where the block or the steps have still to be found.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise RuntimeError(f"lab.trace runs on x86-64 so far; this is {platform.machine()}")
    if window.steps < 1:
        raise ValueError(f"steps: {window.steps}; wanted is a positive number")

    def record(window: Window) -> tuple[Recorded, Report]:
        recorder = Recorder(window)
        with recorder.recording() as recorded:
            report = checks(traced=recorder.used)
            return recorded(), report

    if not isinstance(block, int):
        grid = _launch(record(replace(window, steps=1))[0], window)
        window = replace(window, block=index_of(block, grid, "block"))
    else:
        window = replace(window, block=block)
    if around is not None:
        searching = replace(window, line=around, first=1 << 40, steps=1)
        recorded = record(searching)[0]
        _launch(recorded, window)
        found = recorded.facts["round_of_line"]
        if found < 0:
            raise ValueError(f"around: no thread of the block runs line {around}")
        window = replace(window, first=max(0, found - window.steps // 2))
    recorded, report = record(window)
    _launch(recorded, window)
    return Trace(what, recorded, report, window)


def _launch(recorded: Recorded, window: Window) -> tuple[int, int, int]:
    """The grid of the traced launch. Raises ValueError where there was none such."""
    facts = recorded.facts
    if not facts["found"]:
        if facts["launches"] <= window.launch:
            raise ValueError(
                f"launch: {window.launch}; the call makes {facts['launches']}, from 0 on"
            )
        raise ValueError(f"block: {window.block}; launch {window.launch} has none such")
    return tuple(facts["grid"])
