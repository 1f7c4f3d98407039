"""Pictures of chapter 8: RMS norm and the residual."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

from lab import figure as drawing


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
