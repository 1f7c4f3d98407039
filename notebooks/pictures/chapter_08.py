"""Pictures of chapter 8: RMS norm and the residual."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

from lab import figure as drawing

PLACES = ["x", "residual", "s", "y"]
WAYS = {"read": "#0072B2", "written": "#D55E00"}


def accesses(logs: dict[str, list[tuple[str, int, str] | None]]) -> Figure:
    """What a thread reads and writes, in order: a panel for each log.

    logs: (tensor, column, "read" or "written") for each access, None for a barrier.
    """
    with drawing.style():
        figure, panels = drawing.grid(len(logs), 1, (6.6, 1.6), sharex=True)
        for (axes,), (name, log) in zip(panels, logs.items(), strict=True):
            for step, event in enumerate(log):
                if event is None:
                    axes.axvline(step, color="0.5", linestyle=":", label="barrier")
                    continue
                tensor, column, way = event
                at = step, PLACES.index(tensor)
                axes.scatter(*at, s=150, marker="s", color=WAYS[way], label=way)
                inside = {"ha": "center", "va": "center", "fontsize": 7, "color": "white"}
                axes.text(*at, column, **inside)
            axes.set(yticks=range(4), yticklabels=PLACES, ylim=(3.6, -0.6), xticks=[])
            axes.set_title(f"{name}: {sum(event is not None for event in log)} accesses")
            axes.spines[:].set_visible(False)
            axes.grid(False)
        caption = "thread 0, in time from left to right; the number is the column"
        return drawing.finish(figure, "What a thread reads and writes", caption)


def projection(row: Tensor, result: Tensor, arriving: Tensor, left: Tensor) -> Figure:
    """A row of two columns, its norm, the gradient that arrives, and what is left of it."""
    arrows = {
        "row s": (torch.zeros(2), row, "0.6"),
        "h, the gradient that arrives": (result, arriving, "#0072B2"),
        "its part along the row": (result + left, arriving - left, "#E69F00"),
        "what is left": (result, left, "#D55E00"),
    }
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (5.4, 3.6))
        angle = torch.linspace(-0.2, 1.8, 100)
        axes.plot(2**0.5 * angle.cos(), 2**0.5 * angle.sin(), color="0.8", label="all results, $y$")
        for name, (start, arrow, color) in arrows.items():
            place = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.008}
            axes.quiver(*start.tolist(), *arrow.tolist(), color=color, label=name, **place)
        axes.set(xlim=(-0.2, 2.6), ylim=(-0.3, 2.7), aspect="equal")
        axes.set(xlabel="column 0", ylabel="column 1")
        return drawing.finish(figure, "A row of two columns", "")
