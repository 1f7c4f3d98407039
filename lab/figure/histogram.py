"""The histogram of an error in ULP on log axes: bins half a power of two wide, 1/16 to 2^16.

The first bin takes everything below, including exact results, the last everything above. A bin
includes its upper edge: an error of exactly 0.5 ULP, which a correctly rounded result can have, is
left of the line at 0.5.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from matplotlib.axes import Axes
from torch import Tensor

from lab.measure.case import Case
from lab.measure.error import ulp_error
from lab.rivals.implementation import Implementation
from lab.style import drawing

EDGES = [2 ** (half / 2) for half in range(-9, 34)]

Shares = dict[str, list[float]]  # percent of the elements in each bin, by implementation label


def shares_by_result(
    case: Case, implementations: Iterable[Implementation]
) -> Iterator[tuple[str, Shares]]:
    """The histogram of each result of a case, by its name ("output", "gradient of x")."""
    results = {each.label: case.start(each)[1] for each in implementations}
    for index, (name, truth) in enumerate(zip(case.names, case.truth, strict=True)):
        yield name, {label: shares(tensors[index], truth) for label, tensors in results.items()}


def shares(result: Tensor, truth: Tensor) -> list[float]:
    """Percent of the elements in each bin."""
    error = ulp_error(result, truth).flatten()
    inner = torch.tensor(EDGES[1:-1], dtype=error.dtype, device=error.device)
    counts = torch.bincount(torch.bucketize(error, inner), minlength=len(EDGES) - 1)
    return (100 * counts / error.numel()).tolist()


def draw(axes: Axes, histogram: Shares, versions: Sequence[str]) -> None:
    """PyTorch's shares as a filled area, ours as a line over it. versions: all of the op's."""
    for label, percents in histogram.items():
        color = drawing.look(label, versions)["color"]
        if label.startswith("ours:"):
            axes.stairs(percents, EDGES, color=color, linewidth=1.8, label=label)
        else:
            axes.stairs(percents, EDGES, color=color, alpha=0.6, fill=True, label="PyTorch")
    axes.axvline(0.5, color="0.35", linestyle=":", linewidth=1.2, label="0.5 ULP")


def set_axes(axes: Axes, histograms: Iterable[Shares]) -> None:
    """Log axes that fit all of `histograms`; panels that share axes need it once."""
    filled = [
        (bin_, percent)
        for histogram in histograms
        for percents in histogram.values()
        for bin_, percent in enumerate(percents)
        if percent
    ]
    last = max(EDGES.index(4), *(bin_ + 1 for bin_, _ in filled))
    least = min(percent for _, percent in filled)
    axes.set(
        xscale="log", yscale="log", xlim=(EDGES[0], EDGES[last]), ylim=(min(least / 2, 1), 200)
    )
    drawing.ticks_at(axes.xaxis, EDGES[1 : last + 1 : 8 if last > 24 else 4], first="<1/16")
    powers = EDGES[1 : last + 1 : 2]  # powers of two without a number
    axes.xaxis.set_ticks(powers, [""] * len(powers), minor=True)
    drawing.log_ticks(axes.yaxis, (least, 100))
