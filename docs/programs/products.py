"""How fast matmul is on a GPU beside its rivals, for docs/matmul.md: a part of `make bench`.

    python -m docs.programs.products

The products, the rivals and the turns that they take are those of `lab.bench`; here are besides the
versions of the op.
"""

from __future__ import annotations

import sys

import pandas
import torch

import jitload
from docs.programs.page import Part, table
from kernels.matmul import VERSIONS
from lab.bench import products
from lab.bench.in_turns import measure_product
from lab.bench.measuring import conditions_here
from lab.bench.product_tables import product_tables
from lab.bench.table import COLUMNS
from lab.measure.timing import Timing
from lab.measure.turns import prepare, take_turns
from lab.rivals.implementation import ours

PART = Part("matmul.md", "docs.programs.products")


def versions(n: int = 4096) -> dict[str, Timing]:
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


def main() -> None:
    """Write the tables."""
    if jitload.device().type != "cuda":
        sys.exit("this measures an NVIDIA GPU, and there is none here")
    conditions = conditions_here()
    lines = []
    for product in products.products(["matmul"]):
        print(product, flush=True)
        lines += measure_product(product, conditions)
    measured = pandas.DataFrame(lines, columns=COLUMNS).assign(run="")
    ladder = [[name, f"{2e-12 * 4096**3 / it.median:.0f}"] for name, it in versions().items()]
    texts = [
        f"{conditions['device']}, driver {conditions['driver']}, torch {conditions['torch']}, copy"
        f" {conditions['copy_gb_per_s']:.0f} GB/s.",
        "\n".join(product_tables(measured, [""])[2:]),
        "The versions, 4096 x 4096 x 4096:",
        table(["version", "TFLOPS"], ladder, "lr"),
    ]
    PART.write("\n\n".join(texts))


if __name__ == "__main__":
    main()
