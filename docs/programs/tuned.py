"""What lab.tune finds for three ops, and how near a search comes to it, for docs/tune.md.

    python -m docs.programs.tuned measure   # on a GPU: tries every configuration, docs/tuned_*.csv
    python -m docs.programs.tuned           # lets the search choose among those: the page's table

The search is run on the tables: what a configuration costs is looked up, not measured again. It
begins with the constants as they stand, and, to see how little luck is in that, with those of every
other configuration as if the op had these.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain
from pathlib import Path

import pandas
import torch
from torch import Tensor

import lab
from docs.programs.page import ROOT, Part, table
from kernels import scale_bias_relu
from kernels.cross_entropy import cross_entropy
from kernels.reduce_sum import reduce_sum
from lab.tuner.model import search_among
from lab.tuner.run import declared_values
from lab.tuner.space import Configuration, Space

PART = Part("tune.md", "docs.programs.tuned")
SHARE = 0.1  # of the runs of an exhaustive search, which a search may take
DTYPE = torch.bfloat16
Key = tuple[int, ...]  # the values of a configuration
AS_IT_STANDS = 1.0  # what the op costs with the constants of its source

SPACES: dict[str, Space] = {
    "reduce_sum": Space(
        {
            "kAhead": [2, 4, 6, 8, 12, 16],
            "kVectorThreads": [256, 512, 1024],
            "kVectorBlocks": [1, 2, 3, 4, 6, 8],
        },
        lambda kVectorThreads, kVectorBlocks: kVectorThreads * kVectorBlocks <= 2048,
    ),
    "cross_entropy": Space(
        {
            "kForwardAhead": [4, 8, 16],
            "kAtOnce": [1, 2, 4],
            "kForwardThreads": [128, 256, 512],
            "kForwardBlocks": [2, 3, 4, 6],
        },
        lambda kForwardAhead, kAtOnce, kForwardThreads, kForwardBlocks: (
            kForwardAhead % kAtOnce == 0 and kForwardThreads * kForwardBlocks <= 2048
        ),
    ),
    "scale_bias_relu": Space(
        {
            "kThreads": [64, 128, 256, 512],
            "kUnroll": [1, 2, 4, 6, 8],
            "kBackwardBlocks": [1, 2, 3, 4, 6, 8],
        },
        lambda kThreads, kBackwardBlocks: kThreads * kBackwardBlocks <= 2048,
    ),
}
SHAPES = {
    "reduce_sum": [(16384, 8192), (64, 1 << 20)],
    "cross_entropy": [(8192, 32768), (2048, 131072)],
    "scale_bias_relu": [(16384, 4096), (1024, 65536)],
}


def call_of(name: str, rows: int, cols: int) -> Callable[[], Tensor | tuple[Tensor, ...]]:
    """What is timed of an op on random inputs: forward, and of scale_bias_relu backward alone."""
    x = torch.randn(rows, cols, device="cuda", dtype=DTYPE)
    if name == "reduce_sum":
        return partial(reduce_sum, x)
    if name == "cross_entropy":
        return partial(cross_entropy, x, torch.randint(0, cols, (rows,), device="cuda"))
    scale, bias = torch.randn(2, cols, device="cuda", dtype=DTYPE)
    best = len(scale_bias_relu.VERSIONS) - 1
    return partial(scale_bias_relu.kernel.backward, torch.randn_like(x), x, scale, 1.0, bias, best)


def measure() -> None:
    """Try every configuration of the three ops on this GPU."""
    for name, space in SPACES.items():
        calls = {f"{rows} x {cols}": call_of(name, rows, cols) for rows, cols in SHAPES[name]}
        tuning = lab.tune(calls, rule=space.rule, runs=None, **space.values)
        tuning.table.to_csv(path_of(name), index=False)
        print(tuning)


def path_of(name: str) -> Path:
    return ROOT / "docs" / f"tuned_{name}.csv"


@cache
def costs_of(name: str) -> dict[Key, float]:
    """What each configuration of a table costs, relative to the op as it stands."""
    read = pandas.read_csv(path_of(name))
    constants = list(SPACES[name].values)
    tried = read.dropna(subset=constants)
    keys = tried[constants].astype(int).itertuples(index=False, name=None)
    return dict(zip(keys, tried["cost"], strict=True))


def gap(name: str, runs: int, start: Key | None = None) -> float:
    """By how much what a search finds costs more than the best.

    start: constants that the op is taken to have; None for its own.
    """
    space, known = SPACES[name], costs_of(name)
    configurations = {key: dict(zip(space.values, key, strict=True)) for key in ran(name)}
    declared = declared_values(importlib.import_module(f"kernels.{name}").kernel)
    standing = configurations[start] if start else {it: declared.get(it) for it in space.values}
    stands = known[start] if start else AS_IT_STANDS
    seen = [stands]

    def costs(some: list[Configuration]) -> list[float]:
        taken = [known[tuple(each.values())] for each in some]
        seen.extend(taken)
        return [cost / stands for cost in taken]

    search_among(space, list(configurations.values()), runs, 1, costs, standing)
    return min(seen) / min(stands, *known.values()) - 1


def ran(name: str) -> list[Key]:
    """The configurations of a table that were timed."""
    return [key for key, cost in costs_of(name).items() if math.isfinite(cost)]


def rows(name: str) -> Iterator[list[object]]:
    """Of a search with a tenth as many runs as there are that can run, and as there are at all."""
    known = costs_of(name)
    best = min(known, key=known.get)
    gain = max(0.0, AS_IT_STANDS - known[best])
    named = zip(SPACES[name].values, best, strict=True)
    constants = ", ".join(f"{it} {value}" for it, value in named) if gain else "as it stands"
    for count in (len(ran(name)), len(known)):
        runs = int(SHARE * count)
        others = [gap(name, runs, start) for start in ran(name)]
        yield [
            name,
            f"{len(known)}, {len(ran(name))} run",
            constants,
            f"{gain:.1%}",
            runs,
            f"{gap(name, runs):.1%}",
            f"{sum(gap <= 0.01 for gap in others)} of {len(others)}",
            f"{max(others):.1%}",
        ]


def text() -> str:
    head = ["", "configurations", "the best", "its gain", "search: runs", "gap"]
    other = ["from others: within 1%", "largest gap"]
    return table([*head, *other], chain.from_iterable(map(rows, SPACES)), "lll" + 5 * "r")


if __name__ == "__main__":
    if "measure" in sys.argv[1:]:
        measure()
    PART.write(text())
