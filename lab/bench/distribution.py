"""The speed of random shapes relative to the best rival: distribution, picture, worst cells."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas
from matplotlib.figure import Figure

from lab.bench.cell_lines import ours_and_best, row, untimed
from lab.bench.table import CONDITIONS
from lab.style import drawing

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TITLE = "Random shapes beside the best rival"
WORST = 10
KEY = ("seed", "of", "ops", "number", "device", "torch")
_SIZE = 2.6, 2.0  # inches, of one panel


def shares(lines: list[dict[str, object]]) -> DataFrame:
    """A line for each cell that at least one rival computed.

    `percent` is our speed in percent of the best rival's: its time over ours.
    """
    found = []
    table = pandas.DataFrame(lines)
    if "failure" not in table:
        table["failure"] = None
    table["failure"] = table["failure"].fillna("")
    for number, cell in table.groupby("number"):
        ours, best = ours_and_best(cell)
        if best is None:
            continue
        percent = 100 * best["time_us"] / ours["time_us"]
        found.append(
            {"number": number}
            | {name: ours[name] for name in ("op", "direction", "dtype", "rows", "cols")}
            | {"sizes": ours["options"].removeprefix("random: ")}
            | {"us": round(ours["time_us"], 2), "best": best["implementation"]}
            | {"best_us": round(best["time_us"], 2), "percent": round(percent, 1)}
            | {"untimed": ", ".join(untimed(cell))}
            | {name: ours[name] for name in ("run", *CONDITIONS)}
        )
    return pandas.DataFrame(found)


def join(path: Path, new: DataFrame) -> DataFrame:
    """Write the cells to the CSV, replacing those of the same draw on the same GPU."""
    table = pandas.concat([pandas.read_csv(path), new]) if path.exists() else new
    table = table.drop_duplicates([*KEY], keep="last").sort_values([*KEY], kind="stable")
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)
    return table


def groups(table: DataFrame) -> dict[str, Series]:
    """The percents of each op in each direction."""
    return {
        f"{op}, {direction}": cells["percent"]
        for (op, direction), cells in table.groupby(["op", "direction"], sort=True)
    }


def summary(table: DataFrame) -> str:
    """A table in Markdown: a row for each op, and one for all."""
    heads = ["op", "cells", "minimum", "10th percentile", "median", "below 97%", "below 90%"]
    lines = [row(heads), row(["---"] + ["---:"] * (len(heads) - 1))]
    for name, percents in (groups(table) | {"all": table["percent"]}).items():
        figures = percents.min(), percents.quantile(0.1), percents.median()
        below = (percents < 97).sum(), (percents < 90).sum()
        texts = [f"{figure:.0f}" for figure in (len(percents), *figures, *below)]
        lines.append(row([name, *texts]))
    return "\n".join(lines)


def worst(table: DataFrame) -> str:
    """The cells with the lowest percents, each with the command that repeats it."""
    heads = ["op", "shape", "ours (us)", "best rival (us)", "percent", "again"]
    lines = [row(heads), row(["---"] * len(heads))]
    for cell in table.nsmallest(WORST, "percent").itertuples():
        shape = ", ".join(filter(None, [f"{cell.rows} x {cell.cols}", cell.dtype, cell.sizes]))
        again = f"`python -m lab.bench --random {cell.of} --seed {cell.seed} --cell {cell.number}"
        again += f" --ops {cell.ops}`" if cell.ops != "all" else "`"
        times = [f"{cell.us:.1f}", f"{cell.best_us:.1f} {cell.best}", f"{cell.percent:.0f}"]
        lines.append(row([f"{cell.op} {cell.direction}", shape, *times, again]))
    return "\n".join(lines)


def picture(table: DataFrame) -> Figure:
    """The cumulative distribution for each op: how many of its cells are at most this fast."""
    curves = groups(table)
    across = min(4, len(curves))
    down = -(-len(curves) // across)
    with drawing.style():
        width, height = _SIZE
        figure, axes = drawing.grid(down, across, (width * across, height * down))
        panels = [panel for line in axes for panel in line]
        for panel, (name, percents) in zip(panels, curves.items(), strict=False):
            ordered = sorted(percents.clip(upper=200))
            heights = [(place + 1) / len(ordered) for place in range(len(ordered))]
            panel.step(ordered, heights, where="post", color=drawing.BLUE)
            panel.axvline(100, **drawing.COPY_LINE)
            panel.set_title(f"{name} ({len(ordered)})")
            panel.set_xlim(0, 200)
            panel.set_ylim(0, 1)
        for panel in panels[len(curves) :]:
            panel.set_visible(False)
        for line in axes:
            line[0].set_ylabel("share of cells")
        for panel in panels[max(0, len(curves) - across) : len(curves)]:
            panel.set_xlabel("percent of the best rival's speed")
        last = table.iloc[-1]
        seeds = ", ".join(str(seed) for seed in sorted(set(table["seed"])))
        caption = (
            f"{last['device']}, driver {last['driver']}, torch {last['torch']}; seeds {seeds};"
            " in turns, medians, cold L2; beyond 200% at 200%"
        )
        return drawing.finish(figure, TITLE, caption)


def page(table: DataFrame, command: str, image: str) -> str:
    """The Markdown page for the cells of a CSV."""
    last = table.iloc[-1]
    return "\n".join(
        [
            "# Random shapes",
            "",
            f"`{command}` writes this page. Shapes are drawn from the widths of public models and"
            " from awkward ones, rows from 1 to 65536 on a logarithmic scale. A cell's percent is"
            " the speed of the best rival's speed that ours reaches, in turns in one process, from"
            f" CUDA graphs, with a cold L2. {last['device']}, driver {last['driver']}, torch"
            f" {last['torch']}, last run {last['run']} UTC.",
            "",
            summary(table),
            "",
            f"![{TITLE}]({image})",
            "",
            "## The worst cells",
            "",
            worst(table),
            "",
        ]
    )


def publish(path: Path, new: DataFrame, command: str) -> Iterable[Path]:
    """Add the cells to a CSV, and write page and picture beside it; yields the written paths."""
    table = join(path, new)
    of_device = table[table["device"] == new.iloc[-1]["device"]]
    image = path.with_suffix(".svg")
    yield path
    picture(of_device).savefig(image, metadata={"Date": None})
    yield image
    path.with_suffix(".md").write_text(page(of_device, command, image.name))
    yield path.with_suffix(".md")
