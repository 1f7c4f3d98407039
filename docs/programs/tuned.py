"""What lab.tune finds for three ops, and how near a search comes to it, for docs/tune.md.

    python -m docs.programs.tuned measure   # on a GPU: tries every configuration, docs/tuned_*.csv
    python -m docs.programs.tuned           # lets the search choose among those: the page's table

The search is run on the tables: what a configuration costs is looked up, not measured again.
"""

from __future__ import annotations

import importlib
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas
import torch
from torch import Tensor

import lab
from docs.programs.page import ROOT, Part, table
from kernels.cross_entropy import cross_entropy
from kernels.reduce_sum import reduce_sum
from kernels.scale_bias_relu import scale_bias_relu
from lab.tuner.run import declared_values
from lab.tuner.search import search
from lab.tuner.space import Configuration, Space

PART = Part("tune.md", "docs.programs.tuned")
SEEDS = 20
SHARE = 0.1  # of the configurations, which a search may run
DTYPE = torch.bfloat16
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
    """What is timed of an op on random inputs: forward, and of scale_bias_relu backward."""
    x = torch.randn(rows, cols, device="cuda", dtype=DTYPE)
    if name == "reduce_sum":
        return partial(reduce_sum, x)
    if name == "cross_entropy":
        return partial(cross_entropy, x, torch.randint(0, cols, (rows,), device="cuda"))
    scale, bias = torch.randn(2, cols, device="cuda", dtype=DTYPE)
    inputs = [tensor.requires_grad_() for tensor in (x, scale, bias)]
    arriving = torch.randn_like(x)

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(scale_bias_relu(*inputs), inputs, arriving)

    return backward


def measure() -> None:
    """Try every configuration of the three ops on this GPU."""
    for name, space in SPACES.items():
        calls = {f"{rows} x {cols}": call_of(name, rows, cols) for rows, cols in SHAPES[name]}
        tuning = lab.tune(calls, rule=space.rule, runs=None, **space.values)
        tuning.table.to_csv(path_of(name), index=False)
        print(tuning)


def path_of(name: str) -> Path:
    return ROOT / "docs" / f"tuned_{name}.csv"


def costs_of(name: str) -> dict[tuple[int, ...], float]:
    """What each configuration of a table costs, relative to the op as it stands."""
    read = pandas.read_csv(path_of(name))
    constants = list(SPACES[name].values)
    tried = read.dropna(subset=constants)
    keys = tried[constants].astype(int).itertuples(index=False, name=None)
    return dict(zip(keys, tried["cost"], strict=True))


def gaps(name: str) -> tuple[list[float], int]:
    """By how much what a search finds costs more than the best, for each seed; and its runs."""
    known = costs_of(name)
    runs = int(SHARE * len(known))
    declared = declared_values(importlib.import_module(f"kernels.{name}").kernel)
    standing = {constant: declared.get(constant) for constant in SPACES[name].values}
    found = []
    for seed in range(SEEDS):
        seen: list[float] = []

        def costs(configurations: list[Configuration], seen: list[float] = seen) -> list[float]:
            taken = [known[tuple(each.values())] for each in configurations]
            seen.extend(taken)
            return taken

        search(SPACES[name], runs, 1, costs, seed, standing)
        found.append(min(AS_IT_STANDS, *seen) / min(AS_IT_STANDS, *known.values()) - 1)
    return found, runs


def row(name: str) -> list[object]:
    known = costs_of(name)
    best = min(known, key=known.get)
    gain = max(0.0, AS_IT_STANDS - known[best])
    named = zip(SPACES[name].values, best, strict=True)
    constants = ", ".join(f"{it} {value}" for it, value in named) if gain else "as it stands"
    ran = sum(map(math.isfinite, known.values()))
    found, runs = gaps(name)
    return [
        name,
        f"{len(known)}, {ran} run",
        constants,
        f"{gain:.1%}",
        runs,
        f"{statistics.median(found):.1%}",
        f"{max(found):.1%}",
        f"{sum(gap <= 0.01 for gap in found)} of {SEEDS}",
    ]


def text() -> str:
    head = ["", "configurations", "the best", "its gain", "search: runs", "gap, median", "largest"]
    return table([*head, "within 1%"], map(row, SPACES), "lllr")


if __name__ == "__main__":
    if "measure" in sys.argv[1:]:
        measure()
    PART.write(text())
