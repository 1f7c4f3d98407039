"""See a kernel run, thread by thread, without a GPU.

    lab.trace(kernel.forward, x)                  # the first launch's block 0
    lab.trace(kernel.forward, x, block=(1, 2))    # another block
    lab.trace(kernel.forward, x, around=42)       # the steps around the first that runs line 42
    lab.check(kernel.forward, x).trace(0)         # those around the first finding's accesses
    lab.trace(kernel.forward, x).save("forward.html")

The kernel is compiled once more without optimisation, with a call of the tracer at each line and
before each access to memory, and runs on the CPU's simulator. The lanes of a warp go on together as
long as they are at the same line; all warps go on at the same pace.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace

import torch

from lab.checker.captured import without_partial
from lab.checker.report import Report
from lab.checker.run import SECONDS, again
from lab.tracer import windows
from lab.tracer.record import Recorded, Recorder, Window
from lab.tracer.trace import Blocks, Trace, indices_of

STEPS = 1000


def trace(
    function: Callable | Report,
    *args: object,
    block: Blocks = 0,
    launch: int = 0,
    steps: int = STEPS,
    first: int = 0,
    around: int | None = None,
    finding: int | None = None,
    seconds: float = SECONDS,
    **kwargs: object,
) -> Trace:
    """Call `function(*args, **kwargs)`, and record what one block of one launch does, or several.

    function, args, kwargs: as of `lab.check`; tensors are copied. Or a report of `lab.check`: then
        its call is made again.
    block: its number, or (x, y, z); or a list of these, of up to 16 blocks.
    launch: the position of the launch among those that the call makes, from 0.
    steps: how many are recorded of each block; the rest runs without a record.
    first: the number of the first of them.
    around: a line of the source; recorded are the steps around the first that runs it.
    finding: the position of one of the report's findings; recorded are its launch and block, or
        both its blocks, and the steps around its accesses.
    seconds: that the kernels may take in all.

    Raises:
        CompileError: the kernel does not compile.
        ValueError: there is no such block, launch or finding, or no thread of the block runs that
            line.
        Exception: what the function raised, unless a kernel was to blame for it.
        RuntimeError: no kernel ran, or the machine lacks what the tracer needs.
    """
    if isinstance(function, Report):
        if args or kwargs:
            raise ValueError("a report is traced with the arguments of its own call")
        what, checks, report = function.what, function.again, function
        if checks is None:
            raise RuntimeError("this report cannot be traced: it is not of lab.check's making")
    else:
        call = without_partial(function, args, kwargs)
        what = getattr(call[0], "__qualname__", None) or type(call[0]).__qualname__
        checks, report = again(what, call, seconds=seconds), None
    window = Window(launch, spans=((first, first + steps),))
    return traced(what, checks, block, window, around, finding, report)


def traced(
    what: str,
    checks: Callable[..., Report],
    block: Blocks,
    window: Window,
    around: int | None = None,
    finding: int | None = None,
    report: Report | None = None,
) -> Trace:
    """As `trace`, of what `checks` runs: it is given what it is to tell of each build.

    The call is made once more where the blocks or the steps have still to be found.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise RuntimeError(f"lab.trace runs on x86-64 so far; this is {platform.machine()}")
    ((first, end),) = window.spans
    if end - first < 1:
        raise ValueError(f"steps: {end - first}; wanted is a positive number")

    def record(window: Window) -> tuple[Recorded, Report]:
        recorder = Recorder(window)
        with torch.random.fork_rng(devices=[]), recorder.recording() as recorded:
            report = checks(traced=recorder.used)
            return recorded(), report

    if finding is not None:
        return _of_finding(what, record, window, finding, report)
    if isinstance(block, int):
        window = replace(window, blocks=(block,))
    else:
        grid = _launch(record(replace(window, spans=((0, 1),)))[0], window)
        window = replace(window, blocks=indices_of(block, grid))
    if around is not None:
        recorded = record(replace(window, spans=NEVER, lines=(around,)))[0]
        _launch(recorded, window)
        seen = recorded.tables["sightings"]["round"]
        if not len(seen):
            raise ValueError(f"around: no thread of the block runs line {around}")
        window = replace(window, spans=windows.around([int(seen.min())], end - first))
    recorded, report = record(window)
    _launch(recorded, window)
    return Trace(what, recorded, report, window)


NEVER = ((1 << 40, 1 << 41),)


def _of_finding(
    what: str,
    record: Callable[[Window], tuple[Recorded, Report]],
    window: Window,
    finding: int,
    report: Report | None,
) -> Trace:
    """The steps around the accesses of a finding: of the report, where one is given."""
    if report is None:
        report = record(replace(window, spans=((0, 1),)))[1]
    rows = report.findings.to_dict("records")
    if not 0 <= finding < len(rows):
        raise ValueError(f"finding: {finding}; there are {len(rows)}, from 0 on")
    row = rows[finding]
    if not isinstance(row["block"], tuple) or row["launch"] != row["launch"]:
        raise ValueError(f"finding: {finding} ({row['kind']}) is of no block's making")
    window = replace(window, launch=int(row["launch"]))
    grid = report.launches["grid"][window.launch]
    ends = windows.ends_of(row)
    blocks = list(dict.fromkeys(end["block"] for end in ends if "block" in end)) or [row["block"]]
    window = replace(window, blocks=indices_of(blocks, tuple(grid)))
    lines = windows.lines_to_watch(report, ends)
    recorded, again = record(replace(window, spans=NEVER, lines=lines))
    _launch(recorded, window)
    # In another order of threads the same mistake may show between others.
    found = windows.same(row, again.findings.to_dict("records")) or row
    steps = []
    for end in windows.ends_of(found):
        if end.get("block") in blocks:
            thread = blocks.index(end["block"]) * recorded.stride + end["thread"]
            steps.append(windows.rounds_of(recorded, again, end, thread, found["address"]))
        else:
            steps.append([])
    opened = recorded.tables["opened"]["number"] if len(blocks) == 1 else ()
    points = [step for step in windows.nearest(steps, opened) if step is not None]
    ((first, end),) = window.spans
    if points:
        window = replace(window, spans=windows.around(points, end - first))
    recorded, again = record(window)
    rows = again.findings.to_dict("records")
    found = windows.same(row, rows)
    return Trace(what, recorded, again, window, None if found is None else rows.index(found))


def _launch(recorded: Recorded, window: Window) -> tuple[int, int, int]:
    """The grid of the traced launch. Raises ValueError where there was none such."""
    facts = recorded.facts
    for block, it in zip(window.blocks, facts["blocks"], strict=True):
        if it["found"]:
            continue
        if facts["launches"] <= window.launch:
            raise ValueError(
                f"launch: {window.launch}; the call makes {facts['launches']}, from 0 on"
            )
        raise ValueError(f"block: {block}; launch {window.launch} has none such")
    return tuple(facts["grid"])
