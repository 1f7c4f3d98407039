"""What a check costs, for docs/checker.md.

    python -m docs.programs.checker_cost

Each call is timed as it is, and under lab.check: for errors alone, with traffic, and with traffic
of every block, all on one core, since a check has no use for more. The best of several runs counts;
the whole call does: copies of the tensors, finding the build, the report's data.
"""

import os

os.environ["SIMULATOR_THREADS"] = "1"  # read when the simulator starts

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

import torch

import lab
import reference
from docs.programs.page import Part, table

PART = Part("checker.md", "docs.programs.checker_cost")
SHAPE = (1024, 4096)
ALL = 1 << 40  # threads: more than any launch has
HEAD = ["call", "launched threads", "plain", "errors", "", "traffic", "", "every block", ""]


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


def rows() -> Iterator[list[str]]:
    """A line for a call of next to nothing, and for each op's first and last version."""
    from kernels.square import square

    yield row("square, one element", square, {"x": torch.ones(1)})
    for op in reference.OPS.values():
        module = import_module(f"kernels.{op.name}")
        for version in dict.fromkeys((module.VERSIONS[0], module.VERSIONS[-1])):
            function = partial(getattr(module, op.name), **op.options[0], version=version)
            inputs = op.inputs(*SHAPE, torch.float32, "cpu", without=op.options[0])
            yield row(f"{op.name} {version}", function, inputs)


def row(what: str, function: Callable, inputs: dict[str, torch.Tensor]) -> list[str]:
    """Times of a call and of checks of it, and their ratios to the call's."""
    check = partial(lab.check, function, **inputs)
    launches = check(traffic=False).launches
    threads = sum(blocks * x * y * z for blocks, (x, y, z) in launches[["blocks", "block"]].values)
    plain = best(partial(function, **inputs))
    cells = [what, f"{threads:,}", f"{1e3 * plain:.2f} ms"]
    for options in ({"traffic": False}, {}, {"sample_threads": ALL}):
        taken = best(partial(check, **options))
        cells += f"{1e3 * taken:.1f} ms", f"{taken / plain:.1f}"
    return cells


def main() -> None:
    """Write the table."""
    torch.set_num_threads(1)
    conditions = f"{' x '.join(map(str, SHAPE))}, float32, one core."
    with torch.no_grad():
        PART.write(f"{conditions}\n\n{table(HEAD, rows(), 'lr')}")


if __name__ == "__main__":
    main()
