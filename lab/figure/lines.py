"""Line plots of values that a chapter computes itself."""

import itertools
from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

from lab.style import drawing
from lab.style.drawing import BLUE, GREEN, ORANGE, PURPLE, VERMILLION

COLORS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, "0.5")
OWN = (("predicted", "0.35"), ("PyTorch", drawing.RIVAL_COLORS["eager"]), ("ours", COLORS[0]))
FEW = 30  # lines with fewer points get markers


def plot_lines(
    lines: dict[str, Sequence[float]],
    x: Sequence[float] | None = None,
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    x_log: int = 0,
    y_log: int = 0,
    y_limits: tuple[float, float] | None = None,
    marks: dict[str, Sequence[float]] | None = None,
) -> Figure:
    """Lines over the same x, by label; a label that starts with "predicted" gives a dotted line.

    Each line is wider than the next, so that coinciding lines stay visible.

    x: default 0, 1, 2 ...; a line may end before x does. x_log, y_log: the base of a logarithmic
    axis, 0 for a linear one. marks: positions on the x axis, by label, that get a vertical line.
    """
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (5.4, 2.8))
        colors = _colors(lines)
        last = sum(not label.startswith("predicted") for label in lines)
        for n, (label, y) in enumerate(lines.items(), 1):
            places = range(len(y)) if x is None else x[: len(y)]
            look = {"marker": "o" if len(y) <= FEW else "", "linewidth": 1.5 + 1.2 * (last - n)}
            if label.startswith("predicted"):
                look = {"linestyle": ":", "linewidth": 1.5}
            axes.plot(places, y, color=colors[label], label=label, **look)
        for n, (label, places) in enumerate((marks or {}).items()):
            for place in places:
                axes.axvline(place, color=COLORS[3 + n], linewidth=1, label=label)
        if x_log:
            axes.set_xscale("log", base=x_log)
        if y_log:
            axes.set_yscale("log", base=y_log)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if y_limits:
            axes.set_ylim(y_limits)
        return drawing.finish(figure, title, "")


def _colors(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each label; predictions, PyTorch and ours have fixed ones."""
    found = {label: color for label in labels for word, color in OWN if label.startswith(word)}
    free = itertools.cycle(color for color in COLORS if color not in found.values())
    return {label: found.get(label) or next(free) for label in labels}
