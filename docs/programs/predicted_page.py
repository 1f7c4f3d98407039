"""The tables and the picture of docs/predict.md, from the times and predictions in docs.

python -m docs.programs.predicted_page    writes docs/predict.svg, prints the tables
"""

from __future__ import annotations

import hashlib
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docs.programs.predicted import MODEL
from lab.style import drawing

DOCS = Path(__file__).parents[1]
FILES = {"kernels": DOCS / "predict_kernels.csv", "ops": DOCS / "predict_random.csv"}
NUMBERS = ["measured_us", "predicted_us", "lower_us", "upper_us"]
DIFFERENT = 1.1  # two times of which one is to be told the shorter


def predicted(path: Path, model: int = MODEL) -> pd.DataFrame:
    """The lines of a file that have predictions by a model, with their errors."""
    table = pd.read_csv(path, keep_default_na=False)
    table = table[table.model.astype(str) == str(model)].copy()
    table[NUMBERS] = table[NUMBERS].astype(float)
    table["certain"] = table.certain.astype(str) == "True"
    ratio = table.predicted_us / table.measured_us
    table["error"] = np.maximum(ratio, 1 / ratio) - 1
    table["inside"] = table.measured_us.between(table.lower_us, table.upper_us)
    return table


def held_out(names: pd.Series) -> pd.Series:
    """The half that nobody looks at while the model is mended, by a digest of the name."""
    return names.map(lambda name: hashlib.sha256(name.encode()).digest()[-1] % 2 == 1)


def names(table: pd.DataFrame) -> pd.Series:
    columns = ["kernel", "size"]
    if "op" in table:
        columns = ["op", "version", "direction", "dtype", "rows", "cols", "options"]
    return table[columns].astype(str).agg(" ".join, axis=1)


def row(name: str, part: pd.DataFrame) -> str:
    if part.empty:
        return f"| {name} | 0 | | | |"
    middle, far = part.error.quantile([0.5, 0.9])
    return f"| {name} | {len(part)} | {middle:.0%} | {far:.0%} | {part.inside.mean():.0%} |"


def pairs(kernels: pd.DataFrame) -> tuple[int, int]:
    """Of two kernels of one task and size: how often the faster one is the one predicted so."""
    task = kernels.kernel.str.extract(r"^([a-z0-9]+)", expand=False)
    right = count = 0
    for _, alike in kernels.groupby([task, "size"]):
        for one, other in combinations(alike.itertuples(), 2):
            measured = one.measured_us / other.measured_us
            if max(measured, 1 / measured) >= DIFFERENT:
                count += 1
                right += (measured > 1) == (one.predicted_us > other.predicted_us)
    return right, count


def tables(kernels: pd.DataFrame, ops: pd.DataFrame) -> list[str]:
    launches = ops.launched.str.count(";") + 1
    of_torch = ops.launched.str.contains("PyTorch")
    before = predicted(FILES["ops"], MODEL - 1)
    before = before[~before.launched.str.contains("PyTorch")]
    ours = ops[~of_torch]
    both = pd.concat([kernels, ours])
    lines = ["| | cells | median | 90th percentile | in the 90% interval |"]
    lines.append("|---|---:|---:|---:|---:|")
    lines.append(row("kernels of `predicted_kernels.cu`", kernels))
    lines.append(row("of these: wrong turns", kernels[kernels.kind == "wrong turn"]))
    lines.append(row("this project's ops on rows, drawn at random", ours))
    lines.append(row("others, by the model before", before))
    lines.append(row("of these: one launch", ours[launches[ours.index] == 1]))
    lines.append(row("two or three launches", ours[launches[ours.index] > 1]))
    lines.append(row("naive versions", ours[ours.version == "naive"]))
    lines.append(row('of all: not "measure this"', both[both.certain]))
    for name, part in (("kernels", kernels), ("ops", ours)):
        lines.append(row(f"held out: {name}", part[held_out(names(part))]))
    for low, high in ((0, 12), (12, 100), (100, 1000), (1000, np.inf)):
        name = f"{low} to {high} µs" if high < np.inf else f"from {low} µs on"
        lines.append(row(name, both[both.measured_us.between(low, high, inclusive="left")]))
    lines.append("")
    for kind, part in kernels.groupby("kind"):
        lines.append(row(str(kind), part))
    for mechanism, part in both.groupby("mechanism"):
        lines.append(row(f"mostly {mechanism}", part))
    by_op = ours.groupby("op").error.median().sort_values()
    lines += ["", "By op: " + ", ".join(f"{op} {error:.0%}" for op, error in by_op.items()) + "."]
    lines.append(f"PyTorch's kernels in the call: {int(of_torch.sum())}")
    turns = kernels[kernels.kind == "wrong turn"]
    lines.append(f"Wrong turns within 30%: {(turns.error <= 0.3).sum()} of {len(turns)}")
    lines.append("Pairs in the right order: {} of {}".format(*pairs(kernels)))
    lines.append("\nFarthest off:")
    farthest = both.assign(ratio=both.predicted_us / both.measured_us).nlargest(25, "error")
    for it in farthest.itertuples():
        what = f"{it.kernel} {it.size}" if isinstance(it.kernel, str) else ""
        what = what or f"{it.op} {it.version} {it.direction} {it.rows}x{it.cols} {it.dtype}"
        lines.append(f"{it.ratio:6.2f} {it.measured_us:9.4g} us {it.certain!s:5} {what}")
    return lines


def picture(parts: dict[str, pd.DataFrame]) -> Figure:
    with drawing.style():
        figure = Figure(figsize=(6.2, 4.6), layout="constrained")
        axes = figure.subplots()
        for (name, part), marker in zip(parts.items(), "o^", strict=True):
            for certain, face in ((False, "none"), (True, None)):
                chosen = part[part.certain == certain]
                what = name if certain else f'{name}, "measure this"'
                axes.plot(
                    chosen.measured_us,
                    chosen.predicted_us,
                    marker,
                    ms=3.5,
                    mew=0.7,
                    alpha=0.75,
                    color=f"C{'o^'.index(marker)}",
                    mfc=face,
                    label=what,
                )
        ends = np.array([4.0, 2e5])
        axes.plot(ends, ends, color="0.4", lw=0.8)
        for factor in (1 / 1.25, 1.25):
            axes.plot(ends, factor * ends, color="0.4", lw=0.6, ls=":")
        axes.set(xscale="log", yscale="log", xlabel="measured, µs", ylabel="predicted, µs")
        axes.legend(frameon=False, fontsize=8)
        axes.set_title("H200, cold L2; dotted: 25% off", fontsize=10)
    return figure


def main() -> None:
    parts = {name: predicted(path) for name, path in FILES.items()}
    figure = picture({"kernels": parts["kernels"], "this project's ops": parts["ops"]})
    figure.savefig(DOCS / "predict.svg", metadata={"Date": None})
    svg = re.sub(r"[ \t]+\n", "\n", (DOCS / "predict.svg").read_text("utf-8"))
    (DOCS / "predict.svg").write_text(svg, "utf-8")
    print("\n".join(tables(**parts)))


if __name__ == "__main__":
    main()
