"""How fast matmul is on a GPU beside its rivals, for docs/matmul.md: a part of `make bench`.

    python -m docs.programs.products

The products, the rivals and the turns that they take are those of `lab.bench`; here are besides the
versions of the op.
"""

from __future__ import annotations

import sys

import torch

import jitload
from docs.programs.page import Part, table
from kernels.matmul import VERSIONS
from lab.bench import products
from lab.bench.in_turns import measure_product
from lab.bench.measuring import conditions_here
from lab.bench.product_tables import product_tables
from lab.bench.table import of_lines
from lab.measure.timing import Timing
from lab.measure.turns import prepare, take_turns
from lab.rivals.implementation import ours

PART = Part("matmul.md", "docs.programs.products")
SIDE = 4096  # of the matrices that all versions multiply


def versions(n: int = SIDE) -> dict[str, Timing]:
    """The time of each version of matmul, n cubed."""
    product = products.matmul(torch.bfloat16, "cube", n, n, n)
    (case,) = product.cases()
    device = jitload.device()
    players = {
        name: prepare(lambda name=name: case.step(ours(product.op, name)), device)
        for name in VERSIONS
    }
    timings, failures = take_turns(players, device)
    for failure in failures.values():
        raise failure
    return timings


def text(
    lines: list[dict[str, object]], conditions: dict[str, object], ladder: dict[str, Timing]
) -> str:
    """What the page says, in Markdown."""
    rates = [[name, f"{2e-12 * SIDE**3 / timing.median:.0f}"] for name, timing in ladder.items()]
    return "\n\n".join(
        [
            f"{conditions['device']}, driver {conditions['driver']}, torch {conditions['torch']},"
            f" copy {conditions['copy_gb_per_s']:.0f} GB/s.",
            "\n".join(product_tables(of_lines(lines), [""])[2:]),
            f"The versions, {SIDE} x {SIDE} x {SIDE}:",
            table(["version", "TFLOPS"], rates, "lr"),
        ]
    )


def main() -> None:
    """Write the tables."""
    if jitload.device().type != "cuda":
        sys.exit("this measures an NVIDIA GPU, and there is none here")
    conditions, lines = conditions_here(), []
    for product in products.products(["matmul"]):
        print(product, flush=True)
        lines += measure_product(product, conditions)
    PART.write(text(lines, conditions, versions()))


if __name__ == "__main__":
    main()
