"""Pictures of chapter 18: the numbers that eight bits hold, and which numbers share a scale."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from lab.style import drawing
from lab.style.drawing import BLUE, GREEN, VERMILLION

COLORS = (BLUE, VERMILLION, GREEN)
LEAST = 2.0**-20  # where the logarithmic axes begin


def number_lines(
    types: dict[str, Sequence[float]], sizes: Sequence[float], errors: dict[str, Sequence[float]]
) -> Figure:
    """Which numbers a type has, along two axes, and how far off is what is rounded to it.

    types: the numbers above 0 of each type, the largest being 1. errors: of each type, the worst
    error from each size to the next, as a part of the number.
    """
    with drawing.style():
        figure, ((linear,), (ticks,), (off,)) = drawing.grid(
            3, 1, (7.4, 1.6), height_ratios=(0.8, 0.8, 1.6)
        )
        for axes in (linear, ticks):
            for at, (numbers, color) in enumerate(zip(types.values(), COLORS, strict=True)):
                axes.vlines(numbers, at - 0.38, at + 0.38, color=color, linewidth=0.8)
            axes.set_yticks(range(len(types)), types)
            axes.set_ylim(len(types) - 0.45, -0.55)
            axes.grid(False)
        for (name, values), color in zip(errors.items(), COLORS, strict=True):
            off.step(sizes, values, where="post", color=color, label=name)
        for axes in (ticks, off):
            axes.set_xscale("log", base=2)
            axes.set_xlim(LEAST, 1.15)
        linear.set_xlim(0, 1.01)
        linear.set_title("the numbers above 0")
        ticks.set_title("the same, logarithmic")
        off.set_title("the largest error of rounding to them")
        off.set_yscale("log", base=2)
        off.set(xlabel="part of the largest number", ylabel="part of the number")
        return drawing.finish(figure, "What eight bits hold", "")


def sharing(cases: dict[str, Tensor]) -> Figure:
    """For each case a matrix of errors between 0 and 1, the larger the darker."""
    with drawing.style():
        figure, (panels,) = drawing.grid(1, len(cases), (2.3, 1.9), sharey=True)
        for axes, (title, errors) in zip(panels, cases.items(), strict=True):
            picture = axes.imshow(
                errors.cpu(), cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest"
            )
            axes.set_title(title)
            axes.set_xticks(range(0, errors.shape[1], 128))
            axes.set_yticks(range(0, errors.shape[0], 128))
            axes.set_xlabel("column")
            axes.grid(False)
        panels[0].set_ylabel("row")
        figure.colorbar(picture, ax=panels, label="error, part of a number")
        return drawing.finish(figure, "Who loses its digits to one outlier", "")
