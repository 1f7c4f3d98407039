"""The picture of products in docs/bench.md: percent of the best rival's speed, by kind."""

import statistics

from matplotlib.figure import Figure
from pandas import DataFrame

from lab.bench.cell_lines import runs_of
from lab.bench.product_tables import shares_of
from lab.style import drawing

TITLE = "Products beside the best rival"
SIZE = (6.4, 0.28)  # inches: the width, and the height of one row of points
HEAD = 1.2  # inches for the axis and its label


def product_picture(in_turns: DataFrame) -> Figure | None:
    """A point for each shape, a row of points for each kind of product, its median marked.

    None if no rival has a time.
    """
    if in_turns.empty:
        return None
    kinds = in_turns["options"].str.split(": ").str[0]
    groups = {}
    for (op, direction, kind), lines in in_turns.groupby(["op", "direction", kinds], sort=False):
        if shares := shares_of(lines):
            groups[f"{op}, {kind}, {direction}"] = shares
    if not groups:
        return None
    with drawing.style():
        width, height = SIZE
        figure, axes = drawing.grid(1, 1, (width, HEAD + height * len(groups)))
        panel, ours = axes[0][0], drawing.look("ours:ours", ["ours"])["color"]
        for place, shares in enumerate(groups.values()):
            heights = [place] * len(shares)
            panel.scatter(shares, heights, s=14, color=ours, alpha=0.6, linewidths=0, zorder=2)
            panel.plot(statistics.median(shares), place, "|", color=ours, markersize=13, zorder=3)
        panel.axvline(100, **drawing.COPY_LINE)
        panel.set_yticks(range(len(groups)), list(groups))
        panel.set_ylim(len(groups) - 0.5, -0.5)
        panel.set_xlim(left=0)
        panel.set_xlabel("percent of the best rival's speed; a point for each shape, bar: median")
        last = in_turns.iloc[-1]
        caption = (
            f"{last['device']}, driver {last['driver']}, torch {last['torch']}\n"
            f"in turns, medians, {runs_of(in_turns)[-1]} UTC"
        )
        return drawing.finish(figure, TITLE, caption)
