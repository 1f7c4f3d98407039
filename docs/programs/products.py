"""How fast matmul's versions are on a GPU, and its last one in each type, for docs/matmul.md.

    python -m docs.programs.products

The products of real models, and what is fused, are `make bench`'s, and stand in docs/bench.md.
"""

from __future__ import annotations

import sys

import torch

import jitload
from docs.programs.page import Part, table
from kernels.matmul import VERSIONS
from lab.bench import products
from lab.bench.measuring import conditions_here
from lab.measure.timing import Timing
from lab.measure.turns import prepare, take_turns
from lab.rivals import RIVALS
from lab.rivals.implementation import Implementation, ours

PART = Part("matmul.md", "docs.programs.products")
SIDE = 4096  # of all matrices
TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def versions(n: int = SIDE) -> dict[str, Timing]:
    """The time of each version of matmul, n cubed."""
    op = products.OPS["matmul"]
    return _in_turns({name: ours(op, name) for name in VERSIONS}, torch.bfloat16, n)


def types(n: int = SIDE) -> dict[torch.dtype, dict[str, Timing]]:
    """The times of the last version and of PyTorch in each type, n cubed."""
    op = products.OPS["matmul"]
    both = {"ours": ours(op, VERSIONS[-1]), "eager": RIVALS["eager"](op)}
    return {dtype: _in_turns(both, dtype, n) for dtype in TYPES}


def _in_turns(who: dict[str, Implementation], dtype: torch.dtype, n: int) -> dict[str, Timing]:
    (case,) = products.matmul(dtype, "cube", n, n, n).cases()
    device = jitload.device()
    players = {name: prepare(lambda it=it: case.step(it), device) for name, it in who.items()}
    timings, failures = take_turns(players, device)
    for failure in failures.values():
        raise failure
    return timings


def text(
    conditions: dict[str, object],
    ladder: dict[str, Timing],
    of_types: dict[torch.dtype, dict[str, Timing]],
) -> str:
    """What the page says, in Markdown."""

    def rate(timing: Timing) -> str:
        return f"{2e-12 * SIDE**3 / timing.median:.{0 if timing.median < 0.01 else 1}f}"

    def clock(timing: Timing) -> str:
        return f"{timing.held.mhz:.0f} MHz" if timing.held else ""

    rows = []
    for dtype, both in of_types.items():
        share = f"{100 * both['eager'].median / both['ours'].median:.1f}%"
        name = str(dtype).removeprefix("torch.")
        rows.append([name, rate(both["ours"]), rate(both["eager"]), share, clock(both["ours"])])
    return "\n\n".join(
        [
            f"{conditions['device']}, driver {conditions['driver']}, torch {conditions['torch']},"
            f" {SIDE} x {SIDE} x {SIDE}, in turns. In the first table the GPU draws less power"
            " beside slow versions, so the fast ones have a higher clock than in the second. The"
            " products of real models and fused epilogues are in [bench.md](bench.md).",
            table(
                ["version", "TFLOPS", "clock"],
                [[name, rate(t), clock(t)] for name, t in ladder.items()],
                "lrr",
            ),
            table(["type", "ours, TFLOPS", "PyTorch", "ours / PyTorch", "clock"], rows, "lrrrr"),
        ]
    )


def main() -> None:
    """Write the tables."""
    if jitload.device().type != "cuda":
        sys.exit("this measures an NVIDIA GPU, and there is none here")
    PART.write(text(conditions_here(), versions(), types()))


if __name__ == "__main__":
    main()
