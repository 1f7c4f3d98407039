"""matmul beside F.linear (cuBLAS) in random shapes, a thousand of them in a minute.

    python -m docs.programs.matmul_shapes SEED SECONDS CSV    on a GPU: the times
    python -m docs.programs.matmul_shapes CSV                 anywhere: the table of docs/matmul.md

The shapes are those of `lab.bench --random`, from 17 rows on. Each of the two calls is a CUDA graph
that goes through as many operands as fill L2 three times; they take eight turns, and the medians of
the last seven count. Every result is compared with the product in float64.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.matmul import matmul
from lab.bench.cell_lines import row
from lab.bench.product import Product
from lab.bench.random_products import drawn

COLUMNS = ["rows", "units", "cols", "bias", "dtype", "us", "linear_us", "percent"]
BYTES = 200_000_000  # of the operands of a turn, at least
OPERATIONS = 1.5e12  # of a call, at most
TURNS = 8
BANDS = {"17 to 64": 64, "65 to 256": 256, "257 to 1024": 1024, "above 1024": 1 << 30}


def shapes(seed: int) -> Iterator[Product]:
    for number in itertools.count():
        product = drawn(seed, number, ["matmul"])
        if product.rows > 16 and product.operations <= OPERATIONS:
            yield product


def graph_of(
    call: Callable[..., Tensor], operands: list[tuple[Tensor, ...]]
) -> torch.cuda.CUDAGraph:
    """A call for each of the operands."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for given in operands[:2]:
            call(*given)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for given in operands:
            call(*given)
    return graph


def microseconds(graphs: list[torch.cuda.CUDAGraph], calls: int) -> list[float]:
    """Of a call of each graph, in turns."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[list[float]] = [[] for _ in graphs]
    for turn in range(TURNS):
        order = range(len(graphs)) if turn % 2 else reversed(range(len(graphs)))
        for each in order:
            begin.record()
            graphs[each].replay()
            end.record()
            end.synchronize()
            times[each].append(1e3 * begin.elapsed_time(end) / calls)
    return [statistics.median(of_one[1:]) for of_one in times]


def measured(product: Product) -> list[object]:
    """The line of a product. Raises ArithmeticError if our result is wrong."""
    (rows, cols), (units, _) = product.shapes["x"], product.shapes["w"]
    bytes_of_one = 2 * (rows * cols + units * cols + rows * units)
    calls = min(max(-(-BYTES // bytes_of_one), 3), 40)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device="cuda")

    operands = [
        tuple(
            (random(*shape) / (cols**0.5 if name == "w" else 1)).to(product.dtype)
            for name, shape in product.shapes.items()
        )
        for _ in range(calls)
    ]
    want = F.linear(*(each.double() for each in operands[0]))
    error = (matmul(*operands[0]).double() - want).abs().max() / want.abs().max()
    if error > 3 * torch.finfo(product.dtype).eps:
        raise ArithmeticError(f"{product}: the error is {error:.1e} of the largest element")
    us, of_linear = microseconds([graph_of(call, operands) for call in (matmul, F.linear)], calls)
    dtype = str(product.dtype).removeprefix("torch.")
    percent = round(100 * of_linear / us, 1)
    bias = int("bias" in product.shapes)
    return [rows, units, cols, bias, dtype, round(us, 2), round(of_linear, 2), percent]


def table(path: Path) -> str:
    """Speed in percent of cuBLAS's, by rows of x."""
    found = pd.read_csv(path)
    lines = ["| rows | shapes | minimum | 10th percentile | median | below 97% | below 90% |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    band = pd.cut(found.rows, [0, *BANDS.values()], labels=[*BANDS])
    for name, part in [*found.percent.groupby(band, observed=True), ("all", found.percent)]:
        figures = part.min(), part.quantile(0.1), part.median()
        texts = [f"{it:.0f}" for it in figures]
        counts = [str((part < limit).sum()) for limit in (97, 90)]
        lines.append(row([str(name), str(len(part)), *texts, *counts]))
    return "\n".join(lines)


def main(seed: int, seconds: float, path: Path) -> None:
    begin, lines = time.monotonic(), []
    for product in shapes(seed):
        if time.monotonic() - begin > seconds:
            break
        lines.append(measured(product))
    pd.DataFrame(lines, columns=COLUMNS).to_csv(path, index=False)


if __name__ == "__main__":
    *asked, csv = sys.argv[1:]
    if asked:
        main(int(asked[0]), float(asked[1]), Path(csv))
    print(table(Path(csv)))
