"""Figures of what a chapter computes itself, and the axes on which a figure's bars can be seen."""

import pytest
import torch
from matplotlib.colors import to_hex
from tables import as_if

import lab
from lab.figure import histogram


def entries(axes):
    handles, labels = axes.get_legend_handles_labels()
    return dict(zip(labels, handles, strict=True))


def test_lines_have_their_labels_widths_and_axes():
    lines = {"ours": [1, 2], "PyTorch": torch.tensor([1.0, 2.0]), "predicted": [1, 4, 9]}
    figure = lab.plot_lines(
        lines, [1, 2, 4], title="t", xlabel="offset", ylabel="error", x_log=2, y_log=10
    )
    (axes,) = figure.axes
    drawn = entries(axes)
    assert list(drawn) == list(lines)
    assert list(drawn["PyTorch"].get_ydata()) == [1, 2]
    assert drawn["ours"].get_linewidth() > drawn["PyTorch"].get_linewidth()
    assert drawn["predicted"].get_linestyle() == ":"
    assert to_hex(drawn["PyTorch"].get_color()) == "#e69f00"  # its colour in every figure
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("offset", "error")


def test_lines_mark_places():
    figure = lab.plot_lines(
        {"sum": [1, 2, 3]}, title="t", xlabel="x", ylabel="y", marks={"here": [0, 2]}
    )
    (axes,) = figure.axes
    assert [line.get_xdata()[0] for line in axes.lines if line.get_label() == "here"] == [0, 2]


@pytest.mark.parametrize(("ratio", "scale"), [(20, "linear"), (200, "log")])
def test_a_bar_can_be_seen_beside_a_much_longer_one(measured, ratio, scale):
    chosen = (measured["cols"] == 32) & (measured["dtype"] == "float32")
    table = as_if(measured[chosen], "cuda")
    ours = table["implementation"].str.startswith("ours:")
    times = torch.linspace(10, 10 * ratio, int(ours.sum())).tolist()
    table.loc[ours, "time_us"] = times
    axes = lab.plot_versions(table).axes[1]
    assert axes.get_xscale() == scale
    left, right = axes.get_xlim()
    assert left < 0.9 * min(times)
    assert right > 1.2 * max(times)


def test_an_error_of_half_a_ulp_lies_within_half_a_ulp():
    truth = torch.tensor([1.0 + 2.0**-24], dtype=torch.float64)  # between two floats
    shares = histogram.shares(torch.ones(1), truth)
    (bin_,) = (n for n, share in enumerate(shares) if share)
    assert histogram.EDGES[bin_ + 1] == 0.5
