"""Pictures of chapter 7: layer norm, backward."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

from lab import figure as drawing

LOOKS = {  # colour and marker, and how far from its line
    "PyTorch": ("#E69F00", "s", -0.24),
    "block": ("#7FBCE6", "v", 0),
    "vector": ("#00305C", "o", 0.24),
}


def errors(in_ulp: dict[str, dict[str, Tensor]]) -> Figure:
    """Median and 99th percentile of errors in ULP.

    in_ulp: for each result the errors of "PyTorch", "block" and "vector".
    """
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (5.4, 0.6 + 0.75 * len(in_ulp)))
        for line, of in enumerate(in_ulp.values()):
            for name, error in of.items():
                color, marker, shift = LOOKS[name]
                ends = [_quantile(error, part) for part in (0.5, 0.99)]
                look = {"color": color, "marker": marker, "markevery": [1]}
                axes.plot(ends, [line + shift] * 2, **look, label=name)
                axes.plot(ends[0], line + shift, marker, color=color, markerfacecolor="white")
                values = "  {:.2g} to {:.2g}".format(*ends)
                axes.text(ends[1], line + shift, values, va="center", fontsize=8, color="0.35")
        axes.axvline(0.5, color="0.35", linestyle=":", linewidth=1.2, label="0.5 ULP")
        axes.set_yticks(range(len(in_ulp)), in_ulp)
        axes.set(ylim=(len(in_ulp) - 0.5, -0.5), xscale="log", xlabel="error (ULP)")
        axes.set_xlim(right=4 * axes.get_xlim()[1])
        return drawing.finish(
            figure,
            "Errors of the gradients",
            "hollow: half of the errors are smaller; filled: 99% are",
        )


def _quantile(error: Tensor, part: float) -> float:
    """Of at most a million elements, evenly spread."""
    flat = error.flatten()
    some = flat[:: -(-flat.numel() // 2**20)].double()
    return torch.quantile(some, part).item()
