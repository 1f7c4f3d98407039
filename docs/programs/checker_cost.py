"""What a check costs, for docs/checker.md.

    python -m docs.programs.checker_cost

Each call is timed as it is, and under lab.check: for errors alone, with traffic, and with traffic
of every block, all on one core, since a check has no use for more. The best of several runs counts;
the whole call does: copies of the tensors, finding the build, the report's data.
"""

import os

os.environ["SIMULATOR_THREADS"] = "1"  # read when the simulator starts

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

import torch

import lab
import reference
from docs.programs.page import Part, table, write_csv

PART = Part("checker.md", "docs.programs.checker_cost")
SHAPE = (1024, 4096)
ALL = 1 << 40  # threads: more than any launch has
CSV = "checker_cost.csv"
CHECKS = {"errors": {"traffic": False}, "traffic": {}, "every block": {"sample_threads": ALL}}
HEAD = ["call", "launched threads", "plain ms", *(f"{name} ms" for name in CHECKS)]


def best(call: Callable, seconds: float = 0.3, least: int = 3) -> float:
    """Seconds of the fastest call."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def rows() -> Iterator[list[object]]:
    """A line for a call of next to nothing, and for each op's first and last version."""
    from kernels.square import square

    yield row("square, one element", square, {"x": torch.ones(1)})
    for op in reference.OPS.values():
        module = import_module(f"kernels.{op.name}")
        for version in dict.fromkeys((module.VERSIONS[0], module.VERSIONS[-1])):
            function = partial(getattr(module, op.name), **op.options[0], version=version)
            inputs = op.inputs(*SHAPE, torch.float32, "cpu", without=op.options[0])
            yield row(f"{op.name} {version}", function, inputs)


def row(what: str, function: Callable, inputs: dict[str, torch.Tensor]) -> list[object]:
    """The threads that a call launches, and milliseconds of it and of each check of it."""
    check = partial(lab.check, function, **inputs)
    launches = check(traffic=False).launches
    threads = sum(blocks * x * y * z for blocks, (x, y, z) in launches[["blocks", "block"]].values)
    calls = [partial(function, **inputs), *(partial(check, **how) for how in CHECKS.values())]
    return [what, threads, *(round(1e3 * best(call), 4) for call in calls)]


def summary(rows: list[list[object]]) -> str:
    """How many times a plain call's time each check takes: in the middle, and at the most."""
    lines = []
    for position, name in enumerate(CHECKS, 3):
        times = [(line[position] / line[2], line[0]) for line in rows]
        most, call = max(times)
        middle = statistics.median(ratio for ratio, _ in times)
        lines.append([name, f"{middle:.1f}", f"{most:.1f}, {call}"])
    return table(["check", "median of a plain call's time", "the most"], lines, "lrl")


def main() -> None:
    """Write the CSV and the page's totals."""
    torch.set_num_threads(1)
    with torch.no_grad():
        measured = list(rows())
    write_csv(CSV, HEAD, measured)
    conditions = f"{len(measured)} calls, {' x '.join(map(str, SHAPE))}, float32, one core."
    PART.write(f"{conditions}\n\n{summary(measured)}")


if __name__ == "__main__":
    main()
