"""Measures a cell: a line for each implementation."""

import functools
import importlib
import time
from collections.abc import Callable

import torch

import jitload
from lab import rivals
from lab.bench import quiet
from lab.bench.agree import agree
from lab.bench.cells import Cell
from lab.bench.compiling import COMPILE_SECONDS, in_short
from lab.bench.in_turns import measure_product
from lab.bench.product import Product
from lab.measure import arguments, rows
from lab.measure.timing import (
    GPU_CLOCK,
    HOST_CLOCK,
    bytes_moved,
    copy_bandwidth,
    environment,
    take_time,
)
from lab.measure.turns import Step, take_turns_on_host
from lab.rivals.implementation import Implementation, ours

HOST_CALLS = 200
CALL_SECONDS = 0.05  # of calls for each median: at least 100


def measure_until(
    deadline: float, cell: Cell | Product, without_compile: bool
) -> list[dict[str, object]] | None:
    """The lines of a cell on the GPU or on the host; None if the deadline (time.time()) has passed.

    It is here because processes of `processes` could not import it from __main__.
    """
    try:
        with quiet.alone(deadline):
            if time.time() > deadline:
                return None
            if cell.on_host:
                lines = measure_host(cell, conditions_here(), without_compile)
            elif isinstance(cell, Product):
                lines = measure_product(cell, conditions_here(), without_compile=without_compile)
            else:
                lines = measure_cell(cell, conditions_here(), without_compile)
            torch.cuda.empty_cache()
            return lines
    except quiet.OutOfTimeError:
        return None


def measure_cell(
    cell: Cell, conditions: dict[str, object], without_compile: bool = False
) -> list[dict[str, object]]:
    """A line for each implementation: its time on the GPU, and the resulting bandwidth."""
    case = cell.case()
    expected: tuple[torch.Tensor, ...] = ()
    size = 0

    def measured(each: Implementation) -> dict[str, float]:
        nonlocal expected, size
        step, results = case.start(each)
        if each.ours:
            expected, size = results, bytes_moved(case.reads, results)
        elif not agree(results, expected):
            raise ArithmeticError("its results are not ours")
        timing = take_time(step, jitload.device(), CALL_SECONDS)
        rate = rows.rate(timing, size, conditions["copy_gb_per_s"])
        return rows.time(timing) | rows.held(timing) | rate

    return _lines(cell, GPU_CLOCK, measured, conditions, without_compile)


def measure_host(
    cell: Cell | Product, conditions: dict[str, object], without_compile: bool = False
) -> list[dict[str, object]]:
    """A line for each implementation: the host's time for a call. All take turns."""
    case = cell.case()
    calls: list[Step] = []

    def start(each: Implementation) -> dict[str, float]:
        call = case.both(each) if cell.direction == "both" else case.step(each)
        with each.first_call():
            call()
        calls.append(call)
        return {}

    lines = _lines(cell, HOST_CLOCK, start, conditions, without_compile)
    started = [line["implementation"] for line in lines if "failure" not in line]
    timings, fallen = take_turns_on_host(dict(zip(started, calls, strict=True)), HOST_CALLS)
    if "ours" in fallen:
        raise fallen["ours"]
    for line in lines:
        label = line["implementation"]
        if label in timings:
            line |= rows.time(timings[label])
        if label in fallen:
            line["failure"] = in_short(fallen[label])
    return lines


def _lines(
    cell: Cell | Product,
    clock: str,
    measured: Callable[[Implementation], dict[str, float]],
    conditions: dict[str, object],
    without_compile: bool,
) -> list[dict[str, object]]:
    """Each implementation's line from `measured`, ours first; for a failed rival, the reason."""
    version = arguments.all_versions(cell.op)[-1]
    kernel = importlib.import_module(f"kernels.{cell.name}").kernel
    lines = []
    for label in ("ours", *rivals.rivals_of(cell.op)):
        line = cell.columns() | {"clock": clock, "implementation": label}
        try:
            if label == "ours":
                line["version"] = f"{version} {kernel.digest}"
                line |= measured(ours(cell.op, version))
            elif label == "compile" and without_compile:
                raise TimeoutError(f"not compiled after {COMPILE_SECONDS} s")
            else:
                line |= measured(rivals.RIVALS[label](cell.op))
        except Exception as problem:
            if label == "ours":
                raise
            line["failure"] = in_short(problem)
        lines.append(line | conditions)
    return lines


@functools.cache
def conditions_here() -> dict[str, object]:
    """The conditions of the numbers; the copy is measured at the first call."""
    facts = environment(jitload.device())
    try:
        triton = importlib.import_module("triton").__version__
    except ImportError:
        triton = None
    return {
        "device": facts["device"],
        "driver": facts["driver"],
        "cuda": torch.version.cuda,
        "torch": facts["torch"],
        "triton": triton,
        **rivals.versions(),
        "copy_gb_per_s": copy_bandwidth(),
    }
