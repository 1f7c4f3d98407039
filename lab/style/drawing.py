"""How every figure of the lab looks: size, type, palette, title, caption, legend.

The style lives in a context of its own: matplotlib's global settings stay as the user has them.
A figure needs neither pyplot nor a window system.
"""

import io
import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

STYLE = {
    "figure.dpi": 100,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "0.9",
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "lab",  # and the same figure the same file
}

# Okabe and Ito's palette, which any colour vision tells apart.
BLUE, ORANGE, GREEN, VERMILLION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
YELLOW, BLACK, DARK, GREY = "#F0E442", "#000000", "#444444", "#888888"

# Our versions are one family of blues, the darker the better, each with its own marker.
# Rivals share a colour if no op has both.
RIVAL_COLORS = {"eager": ORANGE, "compile": PURPLE, "liger": GREEN, "quack": VERMILLION}
RIVAL_COLORS |= {"cublaslt": GREEN, "deep_gemm": DARK}
RIVAL_COLORS |= {"cudnn": GREEN, "flash": VERMILLION, "efficient": YELLOW, "flex": BLACK}
RIVAL_COLORS |= {"flash_attn": GREY, "flash_attn_3": DARK, "flash_attn_4": DARK}
RIVAL_COLORS |= {"fa3_fwd": DARK}
RIVAL_COLORS |= {"varlen": GREEN, "unpacked": GREEN, "int8pack": VERMILLION}
RIVAL_MARKERS = {"eager": "s", "compile": "D", "liger": "^", "quack": "v"}
RIVAL_MARKERS |= {"cublaslt": "P", "deep_gemm": "X"}
RIVAL_MARKERS |= {"cudnn": "P", "flash": "v", "efficient": "d", "flex": "h"}
RIVAL_MARKERS |= {"flash_attn": "p", "flash_attn_3": "X", "flash_attn_4": "*"}
RIVAL_MARKERS |= {"fa3_fwd": "<"}
RIVAL_MARKERS |= {"varlen": "P", "unpacked": "P", "int8pack": "v"}
OUR_BLUES = LinearSegmentedColormap.from_list("ours", ["#7FBCE6", BLUE, "#00305C"])
OUR_MARKERS = "ov^<>Pp*"
COPY_LINE = {"color": "0.35", "linestyle": "--", "linewidth": 1.2}


class LabFigure(Figure):
    """A Figure that a notebook shows once, as the value of its cell, whichever backend is set."""

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()


def style() -> AbstractContextManager:
    """The context to draw in: matplotlib's defaults with the lab's changes."""
    return matplotlib.style.context(["default", STYLE])


def grid(
    rows: int, columns: int, panel: tuple[float, float], legend: float = 1.7, **subplots: object
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows x columns panels, each `panel` inches wide and high, and its axes.

    A single column is made wider, so that title and caption fit.

    legend: inches for what stands beside the panels; 0 for a figure without a legend.
    """
    width, height = panel
    width = max(width, 5.4 / columns)
    figure = LabFigure(figsize=(columns * width + legend, rows * height + 0.9))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **subplots).tolist()


def finish(figure: Figure, title: str, caption: str, legend: bool = True) -> Figure:
    """Set title, caption and one legend beside the panels, and lay everything out."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=8, color="0.35")
    entries: dict[str, object] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if legend:
        figure.legend(entries.values(), entries.keys(), loc="outside right upper")
    figure.draw_without_rendering()  # ticks are made in the style of their first drawing: this one
    return figure


def look(label: str, versions: Sequence[str]) -> dict[str, str]:
    """Colour and marker of an implementation, the same in every figure.

    label: a rival's name, "torch:NAME" for any other function of PyTorch's, or "ours:VERSION".
    versions: all versions that the op has, from the naive one to the best.
    """
    if label.startswith("torch:"):
        label = "eager"
    if label in RIVAL_COLORS:
        return {"color": RIVAL_COLORS[label], "marker": RIVAL_MARKERS[label]}
    index = versions.index(label.removeprefix("ours:"))
    shade = index / (len(versions) - 1) if len(versions) > 1 else 1.0
    return {"color": to_hex(OUR_BLUES(shade)), "marker": OUR_MARKERS[index % len(OUR_MARKERS)]}


def ticks_at(axis: Axis, values: Sequence[float], first: str | None = None) -> None:
    """Ticks at `values` alone, as plain numbers; `first`: what to write at the first instead."""
    labels = [f"{value:g}" for value in values]
    axis.set_ticks(values, [first or labels[0], *labels[1:]])
    axis.set_ticks([], minor=True)


def short(number: int) -> str:
    """64k for 65536, where there is little room."""
    return f"{number // 1024}k" if number >= 1024 and number % 1024 == 0 else str(number)


def set_log_bars(axes: Axes, lengths: Sequence[float], room: float = 4) -> None:
    """A log x axis for horizontal bars, from a power of ten that leaves the shortest visible.

    room: the axis ends at this many times the longest.
    """
    axes.set_xscale("log")
    axes.set_xlim(10 ** math.floor(math.log10(min(lengths) / 2)), room * max(lengths))
    log_ticks(axes.xaxis, axes.get_xlim())


def set_linear_errors(axes: Axes, largest: float) -> None:
    """A linear x axis for errors from 0 to `largest`."""
    end = 1.2 * max(largest, 0.5)
    axes.set_xlim(-0.05 * end, end)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def set_log_errors(axes: Axes, largest: float) -> None:
    """An x axis for errors from 0 to `largest`: linear up to 1, then logarithmic.

    Between powers of ten there are ticks at 2 and 5, with their numbers where these have room;
    where there are many powers, only some of those have numbers.
    """
    end = 3 * largest
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(-0.1, end)
    decades = [10**decade for decade in range(int(math.log10(end)) + 1)]
    step = 1 if end < 1e5 else -(-len(decades) // 5)
    ticks_at(axes.xaxis, [0, *decades[::step]])
    between = [part * decade for decade in decades for part in (2, 5) if part * decade < end]
    between = between if step == 1 else [decade for decade in decades if decade > 1]
    texts = [f"{tick:g}" if end < 300 else "" for tick in between]
    axes.xaxis.set_ticks(between, texts, minor=True, fontsize=8)


def numbers(
    axes: Axes, x: Sequence[float], y: Sequence[str], texts: Iterable[str], above: bool
) -> None:
    """The number of each dot, small, above or below it."""
    for place, text in zip(zip(x, y, strict=True), texts, strict=True):
        axes.annotate(
            text,
            place,
            xytext=(0, 6 if above else -6),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            fontsize=8,
            zorder=2.5,  # on the lines, below the dots
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85},
        )


def log_ticks(axis: Axis, values: Sequence[float], unit: str = "") -> None:
    """Ticks of a log axis that holds `values`, as plain numbers (200, not 2 x 10^2).

    unit: written after each number, with a prefix (k, M, G) in front.
    """
    ratio = max(values) / min(values)
    if ratio < 5:
        axis.set_major_locator(MaxNLocator(4))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if ratio < 100 else (1,)))
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axis.set_major_formatter(EngFormatter(unit) if unit else plain)
    axis.set_minor_formatter(NullFormatter())
