"""Predicted against measured times of this project's ops on rows, in shapes that nobody has chosen.

    python -m docs.programs.predicted measure CELLS SEED CSV   on a GPU: the times
    python -m docs.programs.predicted predict CSV [OPS]        elsewhere: predictions beside them

A cell is an op, a version, a direction, a type and a shape, all drawn from the seed. It is timed by
the GPU's clock with a cold L2, without what the host takes. What a cell took is never used to
predict it, or another. The times in docs/predict_random.csv are of the kernels of commit 8956e1c0:
predict them in a checkout with that commit's folder `kernels`.
"""

from __future__ import annotations

import csv
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import lab
from lab.bench.cells import NAMES
from lab.bench.compiling import in_short
from lab.bench.product import Rows, module_of
from lab.bench.random_products import drawn
from lab.measure import arguments
from lab.measure.turns import Step
from lab.predictor.measuring import gpu_seconds
from lab.rivals.implementation import ours

HOST_CYCLES = 1 << 20  # of the GPU, in which the host queues a backward pass: 0.5 ms
ELEMENTS = 1 << 26  # of a tensor, at most: a sample of blocks stands for more anyway
CELL = ["number", "seed", "op", "version", "direction", "dtype", "rows", "cols", "options"]
MEASURED = ["measured_us", "launched"]
PREDICTED = ["predicted_us", "lower_us", "upper_us", "certain", "mechanism", "kernels", "model"]
MODEL = 3  # one more whenever lab/predictor/model.py predicts otherwise: figures are of one model


def cell(seed: int, number: int) -> tuple[Rows, str]:
    """What is timed, and the version of the op."""
    found = next(
        product
        for turn in range(100)
        if (product := drawn(seed, 1000 * number + turn, NAMES)).rows * product.cols <= ELEMENTS
    )
    draw = random.Random(f"version {seed} {number}")
    return replace(found, number=number), draw.choice(module_of(found.name).VERSIONS)


def launched(step: Step) -> str:
    """The kernels that a call launches on the GPU, by name; PyTorch's without theirs."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    names = [it.name for it in found.events() if it.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [name.removeprefix("void ").partition("(")[0] for name in names]
    shown = ["PyTorch's" if name.startswith("at::") else name for name in kernels]
    return "; ".join(name for name in shown if not name.startswith("Mem"))


def measure(count: int, seed: int, path: Path) -> None:
    """Writes `path`: a line for each cell."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(CELL + MEASURED)
        for number in range(count):
            product, version = cell(seed, number)
            line = [number, seed, product.name, version, product.direction]
            line += [arguments.dtype_name(product.dtype), product.rows, product.cols, product.sizes]
            try:
                step = product.case().step(ours(product.op, version))
                line.append(f"{1e6 * gpu_seconds(step, host_cycles=HOST_CYCLES):.4g}")
                line.append(launched(step))
            except Exception as failure:
                print(*line, in_short(failure), flush=True)
                continue
            writer.writerow(line)
            file.flush()


def to_fill(path: Path) -> pd.DataFrame:
    """The table, with the columns PREDICTED, which may be empty."""
    table = pd.read_csv(path, keep_default_na=False)
    for column in PREDICTED:
        if column not in table:
            table[column] = ""
    table[PREDICTED] = table[PREDICTED].astype(object)
    return table


def predict(path: Path, ops: list[str]) -> None:
    """Adds the predictions to the lines of `path`, of all ops or of those named."""
    table = to_fill(path)
    for index, line in table.iterrows():
        if ops and line.op not in ops:
            continue
        product, version = cell(line.seed, line.number)
        step = product.case().step(ours(product.op, version))
        try:
            found = lab.predict(step, gpu="H200")
        except Exception as failure:
            print(product, version, in_short(failure), flush=True)
            continue
        table.loc[index, PREDICTED] = predicted(found)
        ratio = 1e6 * found.seconds / float(line.measured_us)
        print(f"{ratio:6.2f} {float(line.measured_us):9.4g} us  {product} {version}", flush=True)
        table.to_csv(path, index=False)
    told(table, "op")


def predicted(found: lab.Prediction) -> list[object]:
    """The columns PREDICTED."""
    microseconds = [1e6 * it for it in (found.seconds, found.lower, found.upper)]
    kernels = "; ".join(launch.kernel for launch in found.counts.launches)
    numbers = [f"{it:.4g}" for it in microseconds]
    return [*numbers, found.certain, found.longest.main, kernels, MODEL]


def told(table: pd.DataFrame, by: str) -> None:
    """The distribution of errors, of all, of those that are not "measure this", and by a column."""
    table = table[table.predicted_us != ""].copy()
    for column in ("measured_us", "predicted_us", "lower_us", "upper_us"):
        table[column] = table[column].astype(float)
    ratio = table.predicted_us / table.measured_us
    table["error"] = np.maximum(ratio, 1 / ratio) - 1
    table["inside"] = table.measured_us.between(table.lower_us, table.upper_us)
    certain = table[table.certain.astype(str) == "True"]
    parts = {"all": table, "certain": certain, **dict(list(table.groupby(by)))}
    for name, part in parts.items():
        middle, far = part.error.quantile([0.5, 0.9])
        print(f"{name:20} {len(part):4} cells, error {middle:4.0%} median, {far:4.0%} 90th", end="")
        print(f" percentile; {part.inside.mean():.0%} in the 90% interval")


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        predict(Path(sys.argv[2]), sys.argv[3:])
