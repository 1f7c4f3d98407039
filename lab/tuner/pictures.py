"""Figures of what `lab.tune` tried."""

from __future__ import annotations

import numpy
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from pandas import DataFrame

from lab.figure import plots
from lab.style import drawing

COLORS = colormaps["viridis_r"]  # dark is slow
MOST_LINES = 200  # most configurations drawn, the best ones, so that a figure stays readable
WORST = 1.5  # times the best: all higher costs have the same colour


def plot_tuning(table: DataFrame, rows: str | None, columns: str | None) -> Figure:
    """`Tuning.plot`, of its table."""
    facts = table.attrs
    constants = list(facts["constants"])
    run = table[numpy.isfinite(table["cost"])].dropna(subset=constants)
    if run.empty:
        raise ValueError("table: no configuration has run, so that there is nothing to draw")
    down, across = _two(run, constants, rows, columns)
    least = run["cost"].min()
    scale = Normalize(least, max(min(run["cost"].max(), WORST * least), 1.001 * least))
    with drawing.style():
        width = max(3.8, 1.0 + 0.55 * run[across].nunique() if across else 3.8)
        figure, ((left, right),) = drawing.grid(1, 2, (max(width, 1.0 + 0.8 * len(constants)), 3.6))
        _heat(left, run, down, across, scale)
        _parallel(right, run, constants, scale)
        shades = figure.colorbar(
            _mappable(scale), ax=right, label=f"{_quantity(facts)} / kernel as it stands"
        )
        shades.outline.set_visible(False)
        caption = f"{plots.machine(facts)}\n{_what(facts)}, {facts['date']}"
        return drawing.finish(figure, f"{facts['kernel']}: {len(run)} configurations", caption)


def _quantity(facts: dict) -> str:
    return "predicted time" if facts["predicted_for"] else "time"


def _what(facts: dict) -> str:
    how = f"predicted for {facts['predicted_for']}" if facts["predicted_for"] else facts["clock"]
    return f"{', '.join(facts['calls'])}; {how}"


def _two(
    run: DataFrame, constants: list[str], rows: str | None, columns: str | None
) -> tuple[str, str | None]:
    """Which constants a heat map shows: those asked for, else those that matter most."""
    for argument, name in (("rows", rows), ("columns", columns)):
        if name is not None and name not in constants:
            raise ValueError(f"{argument}: {name!r} is no constant of {', '.join(constants)}")
    by_weight = sorted(constants, key=lambda name: -_weight(run, name))
    left = [name for name in by_weight if name not in (rows, columns)]
    rows = rows or left.pop(0)
    left = [name for name in left if name != rows]
    return rows, columns or (left[0] if left else None)


def _weight(run: DataFrame, name: str) -> float:
    """The spread between the mean costs of its values."""
    average = run.groupby(name)["cost"].mean()
    return float(average.max() - average.min())


def _heat(axes: Axes, run: DataFrame, down: str, across: str | None, scale: Normalize) -> None:
    """Each cell is the best configuration with these two values."""
    run = run.assign(one=0) if across is None else run
    across_or_one = across or "one"
    best = run.pivot_table(index=down, columns=across_or_one, values="cost", aggfunc="min")
    axes.imshow(best.to_numpy(float), cmap=COLORS, norm=scale, aspect="auto")
    axes.set_yticks(range(len(best.index)), best.index)
    axes.set_xticks(range(len(best.columns)), best.columns if across else [""])
    axes.set_ylabel(down)
    axes.set_xlabel(across or "")
    axes.grid(False)
    axes.tick_params(length=0)
    for (y, x), cost in numpy.ndenumerate(best.to_numpy(float)):
        if numpy.isfinite(cost):
            dark = scale(cost) > 0.5
            axes.text(x, y, f"{cost:.2f}", ha="center", va="center", size=8,
                      color="white" if dark else "black")  # fmt: skip
    axes.set_title("the best of each pair")


def _parallel(axes: Axes, run: DataFrame, constants: list[str], scale: Normalize) -> None:
    """A line for each configuration; the best ones are drawn last, and the best one thick."""
    shown = run.nsmallest(MOST_LINES, "cost")
    places = {name: sorted(run[name].unique()) for name in constants}
    for number, (_, row) in enumerate(reversed(list(shown.iterrows()))):
        heights = [
            places[name].index(row[name]) / max(len(places[name]) - 1, 1) for name in constants
        ]
        best = number == len(shown) - 1
        axes.plot(range(len(constants)), heights, color=COLORS(scale(row["cost"])),
                  linewidth=3 if best else 1, alpha=1 if best else 0.6,
                  marker="o" if best or len(constants) == 1 else None)  # fmt: skip
    for x, name in enumerate(constants):
        axes.axvline(x, color="0.8", linewidth=0.8, zorder=0)
        for place, value in enumerate(places[name]):
            height = place / max(len(places[name]) - 1, 1)
            axes.annotate(str(value), (x, height), xytext=(-4, 3), ha="right", fontsize=8,
                          textcoords="offset points")  # fmt: skip
    axes.set_xticks(range(len(constants)), constants)
    axes.set_yticks([])
    axes.set_xlim(-0.4, len(constants) - 0.8)
    axes.set_ylim(-0.06, 1.1)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title("each configuration, the best one thick")


def _mappable(scale: Normalize) -> object:
    from matplotlib.cm import ScalarMappable

    return ScalarMappable(scale, COLORS)
