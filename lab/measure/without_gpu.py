"""Figures in place of times if there is no GPU: the time that lab.predict predicts for one, the
bytes of global memory that a call fetches, as lab.check counts them, and the published time.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from functools import cache

import jitload
from lab.checker.run import check
from lab.gpus import gpu as gpus
from lab.measure.timing import GPU_CLOCK, SIMULATOR_CLOCK, Timing
from lab.predictor.report import Prediction
from lab.predictor.run import predict

SECONDS = 20.0  # that a call may take under the checker, and to be predicted
MOST_THREADS = 1 << 22  # whose accesses are all recorded, where a check by itself records fewer
LEAST_SHARE = 1 / 32  # of the blocks: a check that records fewer has many accesses in each
PUBLISHED = jitload.KERNELS.parent / "docs" / "bench.csv"
USUAL_COLS = 4096


def fetched(call: Callable[[], object], timing: Timing | None) -> float:
    """Bytes of global memory that a call's kernels fetch on the simulator; NaN if none runs there,
    if the checker does not run them to their end, or if recording a whole launch would take too
    long.
    """
    if timing is None or timing.clock != SIMULATOR_CLOCK:
        return math.nan
    try:
        report = check(call, seconds=SECONDS)
        shares = report.launches["recorded"] / report.launches["blocks"]
        if report.sampled and (shares >= LEAST_SHARE).all():
            report = check(call, seconds=SECONDS, sample_threads=MOST_THREADS)
    except Exception:  # of the checker: the call itself has just run
        return math.nan
    unfinished = {"timeout", "deadlock", "raised"} & set(report.findings["kind"])
    return math.nan if unfinished or report.sampled else float(report.bytes_fetched)


def predicted(call: Callable[[], object], timing: Timing | None) -> Prediction | None:
    """The predicted time of a call's kernels on the GPU that `lab.gpus.gpu.load` returns for None.

    It uses machine code only if the cache has it, as after lab.predict, because nvcc takes longer
    than all the rest. None if no kernel ran on the simulator, or if the checker does not run them
    to their end.
    """
    if timing is None or timing.clock != SIMULATOR_CLOCK:
        return None
    try:
        return predict(call, seconds=SECONDS, compile=None)
    except Exception:  # of the checker: the call itself has just run
        return None


def predicted_for() -> str:
    """The GPU of `predicted`."""
    return gpus.load().title


@cache
def published(op: str, direction: str, dtype: str) -> str:
    """A line of docs/bench.csv on an op's best version on a GPU; "" if there is none."""
    if not PUBLISHED.is_file():
        return ""
    wanted = {"op": op, "direction": direction, "dtype": dtype, "implementation": "ours"}
    wanted |= {"clock": GPU_CLOCK}
    with PUBLISHED.open(newline="") as file:
        lines = [
            line
            for line in csv.DictReader(file)
            if wanted.items() <= line.items() and line["time_us"] and line["cols"]
        ]
    if not lines:
        return ""
    line = min(lines, key=lambda it: abs(math.log2(int(it["cols"]) / USUAL_COLS)))
    shape = f"{line['rows']} x {line['cols']}"
    return (
        f"published, {line['device']}: {float(line['time_us']):.0f} µs for {shape}, {direction},"
        f" {dtype}, {line['version'].split()[0]}"
    )
