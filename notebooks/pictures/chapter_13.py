"""Pictures of chapter 13: training."""

from matplotlib.figure import Figure
from torch import Tensor

from lab import figure as drawing
from notebooks.training.train import Curve

READ, WRITTEN = "#0072B2", "#D55E00"
OURS, THEIRS = "#0072B2", "#E69F00"
KINDS = {
    "products": "#999999",
    "attention": "#56B4E9",
    "norms": "#D55E00",
    "activation": "#E69F00",
    "loss": "#CC79A7",
    "optimizer": "#009E73",
    "rest": "#DDDDDD",
}
CURVES = {
    "truth": {"color": "0.8", "linewidth": 6},
    "PyTorch, the same masks": {"color": THEIRS, "linewidth": 3},
    "PyTorch, masks of its own": {"color": "#CC79A7", "linestyle": ":"},
    "ours": {"color": OURS, "linewidth": 1.4},
}


def traffic(ways: dict[str, list[tuple[str, list[str], list[str]]]]) -> Figure:
    """Who reads and writes what: a panel for each way, a column for each op, a line for a tensor.

    ways: for each its ops in order, as (name, names of tensors read, names of tensors written).
    """
    with drawing.style():
        panel = (3.4, 3.0)
        figure, (panels,) = drawing.grid(1, len(ways), panel, width_ratios=[3, 2])
        for axes, (way, ops) in zip(panels, ways.items(), strict=True):
            touched = [name for _, reads, writes in ops for name in reads + writes]
            lines = {name: at for at, name in enumerate(dict.fromkeys(touched))}
            for column, (_, *both) in enumerate(ops):
                for label, color, names in zip(
                    ("read", "written"), (READ, WRITTEN), both, strict=True
                ):
                    look = {"s": 100, "marker": "s", "color": color, "label": label}
                    axes.scatter([column] * len(names), [lines[name] for name in names], **look)
            axes.set_xticks(range(len(ops)), [op for op, *_ in ops], rotation=35, ha="right")
            axes.set_yticks(range(len(lines)), lines)
            axes.tick_params(labelsize=8, length=0)
            axes.set(xlim=(-0.6, len(ops) - 0.4), ylim=(len(lines) - 0.4, -0.6))
            axes.set_title(way)
            axes.grid(False, axis="x")
            axes.spines[:].set_visible(False)
        return drawing.finish(figure, "Who reads and writes what", "")


def steps(seconds: dict[str, dict[str, float]], title: str, xlabel: str = "ms a step") -> Figure:
    """Bars of {name: {kind: seconds}}, one kind of work after the other."""
    millis = {name: {k: 1e3 * s for k, s in of.items()} for name, of in seconds.items()}
    return stacked(millis, KINDS, title, xlabel)


def stacked(
    values: dict[str, dict[str, float]], colors: dict[str, str], title: str, xlabel: str
) -> Figure:
    """A bar for each name, of its parts in the order of `colors`, with their sum at its end."""
    longest = max(sum(of.values()) for of in values.values())
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (6.4, 0.5 + 0.42 * len(values)))
        for name, of in values.items():
            left = 0.0
            for part in (part for part in colors if part in of):
                axes.barh(name, of[part], left=left, color=colors[part], label=part)
                left += of[part]
            axes.text(left, name, f" {left:.1f}", va="center", fontsize=9)
        axes.invert_yaxis()
        axes.set(xlim=(0, 1.12 * longest), xlabel=xlabel)
        axes.grid(False, axis="y")
        return drawing.finish(figure, title, "")


def curves(losses: dict[str, Tensor], least: float) -> Figure:
    """Losses by step, and how far each is from the truth; `least` is drawn where it is none."""
    with drawing.style():
        figure, ((left, right),) = drawing.grid(1, 2, (3.8, 2.6))
        for way, look in CURVES.items():
            left.plot(losses[way], label=way, **look)
            if way != "truth":
                off = (losses[way] - losses["truth"]).abs()
                right.semilogy(off.clamp(min=least), **look)
        left.set(xlabel="step", title="loss")
        right.set(xlabel="step", title="distance from the truth")
        return drawing.finish(figure, "The same curve", "")


def costs(curves: dict[str, Curve], title: str) -> Figure:
    """Bars of a step's seconds and bytes; the names of ours begin with "ours"."""
    shades = [OURS if way.startswith("ours") else THEIRS for way in curves]
    with drawing.style():
        figure, (panels,) = drawing.grid(1, 2, (3.4, 0.4 + 0.34 * len(curves)), sharey=True)
        for axes, xlabel, values in (
            (panels[0], "ms a step", [1e3 * curve.seconds for curve in curves.values()]),
            (panels[1], "GB at most", [1e-9 * curve.bytes for curve in curves.values()]),
        ):
            bars = axes.barh(list(curves), values, color=shades)
            axes.bar_label(bars, [f"{value:.1f}" for value in values], padding=3, fontsize=8)
            axes.set_xlabel(xlabel)
            axes.margins(x=0.18)
            axes.grid(False, axis="y")
        panels[0].invert_yaxis()
        return drawing.finish(figure, title, "")
