"""How fast matmul is on a GPU beside PyTorch's products, for docs/matmul.md.

    python -m docs.programs.products

Ours and the rivals take turns: each is recorded in a CUDA graph of several calls, and the graphs
are replayed one after the other, again and again; the median counts. Power and clocks decide such
figures, so that only those of one line, of one run, may be compared.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

import jitload
from docs.programs.page import Part, table
from kernels.matmul import VERSIONS, matmul
from lab.measure import copy_bandwidth
from lab.measure.timing import environment

PART = Part("matmul.md", "docs.programs.products")
ROUNDS = 9
OPERATIONS = 2e12  # of a graph, about
COLD = 200e6  # bytes of w that calls of few rows go through, so that no cache has them


class Shape(NamedTuple):
    """A product of x [rows, cols] and w [units, cols]."""

    rows: int
    units: int
    cols: int
    what: str = ""

    @property
    def operations(self) -> int:
        return 2 * self.rows * self.units * self.cols

    def __str__(self) -> str:
        return f"{self.rows} x {self.units} x {self.cols}"


CUBES = [Shape(n, n, n) for n in (2048, 4096, 6144, 8192)]
MODELS = [  # of Llama 3 8B: of a token, of a few, of a prompt, of a batch
    Shape(128, 6144, 4096, "q, k and v"),
    Shape(256, 28672, 4096, "gate and up"),
    Shape(512, 4096, 4096, "output of attention"),
    Shape(512, 14336, 4096, "gate"),
    Shape(1024, 4096, 14336, "down"),
    Shape(2048, 28672, 4096, "gate and up"),
    Shape(4096, 14336, 4096, "gate"),
    Shape(4096, 4096, 14336, "down"),
    Shape(8192, 6144, 4096, "q, k and v"),
    Shape(8192, 128256, 4096, "vocabulary"),
    Shape(16384, 4096, 4096, "output of attention"),
    Shape(16384, 14336, 4096, "gate"),
]
FEW = [
    Shape(rows, units, cols)
    for rows in (1, 16, 63)
    for units, cols in ((4096, 4096), (28672, 4096), (4096, 14336))
]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda").bfloat16()


def seconds(calls: dict[str, Callable[[], object]], operations: int) -> dict[str, float]:
    """Of one call of each; the calls take turns."""
    count = max(1, min(50, round(OPERATIONS / operations)))
    graphs = {}
    for name, call in calls.items():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(count):
                call()
        graphs[name].replay()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) / 1e3 / count)
    return {name: statistics.median(each) for name, each in times.items()}


def clock() -> str:
    """The GPU's at this moment, and whether its power limit holds it there."""
    asked = "clocks.sm,clocks_throttle_reasons.sw_power_cap"
    command = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader", "--id=0"]
    said = subprocess.run(command, capture_output=True, text=True).stdout.strip().split(", ")
    return ", ".join([*said[:1], *(["power limit"] if said[1:] == ["Active"] else [])])


def rate(operations: int, time: float) -> str:
    return f"{operations / time / 1e12:.0f}"


def plain(shape: Shape) -> list[object]:
    x, w = drawn(shape.rows, shape.cols), drawn(shape.units, shape.cols)
    times = seconds({"ours": lambda: matmul(x, w), "cuBLAS": lambda: x @ w.T}, shape.operations)
    rates = [rate(shape.operations, times[name]) for name in times]
    return [shape, shape.what, *rates, f"{times['cuBLAS'] / times['ours']:.1%}", clock()]


def ladder(n: int = 4096) -> list[list[object]]:
    x, w = drawn(n, n), drawn(n, n)
    calls = {v: lambda v=v: matmul(x, w, version=v) for v in VERSIONS}
    times = seconds(calls, 2 * n**3)
    return [[v, rate(2 * n**3, time)] for v, time in times.items()]


def ends(n: int) -> list[list[object]]:
    """What is fused, beside the plain product and beside PyTorch's ops one after the other."""
    x, w, bias, residual = drawn(n, n), drawn(n, n), drawn(n), drawn(n, n)

    def swiglu() -> Tensor:
        a, b = functional.linear(x, w, bias).chunk(2, -1)
        return functional.silu(a) * b

    linear = functional.linear
    pairs = {
        "nothing": (lambda: matmul(x, w), lambda: x @ w.T),
        "bias": (lambda: matmul(x, w, bias), lambda: linear(x, w, bias)),
        "bias, relu": (
            lambda: matmul(x, w, bias, act="relu"),
            lambda: torch._addmm_activation(bias, x, w.T),
        ),
        "bias, gelu": (
            lambda: matmul(x, w, bias, act="gelu"),
            lambda: functional.gelu(linear(x, w, bias)),
        ),
        "bias, silu": (
            lambda: matmul(x, w, bias, act="silu"),
            lambda: functional.silu(linear(x, w, bias)),
        ),
        "bias, residual": (
            lambda: matmul(x, w, bias, residual),
            lambda: linear(x, w, bias) + residual,
        ),
        "bias, swiglu": (lambda: matmul(x, w, bias, act="swiglu"), swiglu),
    }
    calls = {f"{who} {name}": pair[who] for name, pair in pairs.items() for who in (0, 1)}
    times = seconds(calls, 2 * n**3)
    return [
        [
            n,
            name,
            f"{1e6 * times[f'0 {name}']:.0f}",
            f"{times[f'0 {name}'] / times['0 nothing'] - 1:+.1%}",
            f"{1e6 * times[f'1 {name}']:.0f}",
        ]
        for name in pairs
    ]


def few(shape: Shape, copy: float) -> list[object]:
    """copy: bytes a second. w is another one at each call, which no cache has."""
    x = drawn(shape.rows, shape.cols)
    many = [
        drawn(shape.units, shape.cols) for _ in range(round(COLD / shape[1] / shape[2] / 2) + 1)
    ]
    turn = 0

    def w() -> Tensor:
        nonlocal turn
        turn += 1
        return many[turn % len(many)]

    times = seconds({"ours": lambda: matmul(x, w()), "cuBLAS": lambda: x @ w().T}, 4 * 10**10)
    size = 2 * (shape.rows * (shape.cols + shape.units) + shape.units * shape.cols)
    return [
        shape,
        f"{1e6 * times['ours']:.1f}",
        f"{1e6 * times['cuBLAS']:.1f}",
        f"{times['cuBLAS'] / times['ours']:.1%}",
        f"{size / times['ours'] / copy:.0%}",
    ]


def main() -> None:
    """Write the tables."""
    if jitload.device().type != "cuda":
        sys.exit("this measures an NVIDIA GPU, and there is none here")
    copy = copy_bandwidth() * 1e9
    facts = environment(jitload.device())
    head = ["shape", "", "ours", "cuBLAS", "ours / cuBLAS", "clock"]
    texts = [
        f"{facts['device']}, driver {facts['driver']}, torch {facts['torch']}, copy"
        f" {copy / 1e9:.0f} GB/s. bfloat16, 10^12 operations a second.",
        table(head, [plain(shape) for shape in CUBES + MODELS], "llr"),
        "The versions, 4096 x 4096 x 4096:",
        table(["version", "10^12 operations a second"], ladder(), "lr"),
        "What is fused, n x n x n, in µs; beside the product alone, and PyTorch's ops for it:",
        table(
            ["n", "fused", "ours", "dearer by", "PyTorch"],
            [row for n in (4096, 8192) for row in ends(n)],
            "rlr",
        ),
        "Few rows, in µs, with w in no cache; and of the bandwidth of a copy:",
        table(
            ["shape", "ours", "cuBLAS", "ours / cuBLAS", "of a copy"],
            [few(shape, copy) for shape in FEW],
            "lr",
        ),
    ]
    PART.write("\n\n".join(texts))


if __name__ == "__main__":
    main()
