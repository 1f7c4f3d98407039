"""The primer's pictures: the model of the machine, and the roofline.

Hardware figures are those of an H200 (compute capability 9.0).
"""

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from lab.figure import plots
from lab.style import drawing
from lab.style.drawing import BLUE, VERMILLION

if TYPE_CHECKING:
    from pandas import DataFrame

WARP = 32  # threads

INK, QUIET, PAPER = "0.15", "0.45", "0.97"
BLOCKS = ("#CDE4F5", BLUE, "#F6DDB0", "#D5E8D4")  # four blocks; the second is shown in detail
ON_CHIP, L2, DRAM = "#E4EEF7", "#DDE3C8", "#EAD7D1"


def draw_machine() -> Figure:
    """At the left the grid of a launch; at the right the hardware that runs it."""
    with drawing.style():
        figure = drawing.LabFigure(figsize=(11, 6.2), layout="none")
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 110), ylim=(0, 62))
        axes.axis("off")
        _draw_program(axes)
        _draw_hardware(axes)
        return figure


def _draw_program(axes: Axes) -> None:
    _text(axes, 2, 59, "What a launch starts", size=12, weight="bold")
    _box(axes, 2, 47.5, 44, 8)
    _text(axes, 3.5, 53.2, "host (the CPU)", color=QUIET)
    _text(axes, 3.5, 49.6, "kernel<<<4, 128, 0, stream>>>(x, y, n)", family="monospace")
    _arrow(axes, (24, 47.5), (24, 43.6))
    _text(axes, 25.5, 45.3, "stream: launches wait here for their turn", color=QUIET)

    _box(axes, 2, 31.5, 44, 12)
    _text(axes, 3.5, 41.3, "grid: all blocks of the launch", color=QUIET)
    for block, color in enumerate(BLOCKS):
        left = 3.5 + 10.5 * block
        _box(axes, left, 33, 9.5, 6.5, color=color)
        ink = "white" if block == 1 else INK
        _text(axes, left + 4.75, 36.2, f"block {block}", ha="center", color=ink)
    for near, far in (((14, 33), (2, 27)), ((23.5, 33), (46, 27))):
        axes.plot(*zip(near, far, strict=True), color=BLOCKS[1], linewidth=0.8, linestyle=":")

    _box(axes, 2, 2, 44, 25, edge=BLOCKS[1])
    _text(axes, 3.5, 24.7, "block 1: 128 threads, which share memory", color=QUIET)
    for warp in range(4):
        bottom = 18.8 - 4 * warp
        _text(axes, 3.5, bottom + 1.2, f"warp {warp}")
        for lane in range(WARP):
            _box(axes, 11 + 1.06 * lane, bottom, 0.86, 2.4, color=BLOCKS[1], edge="none")
    _box(axes, 11 + 1.06 * 5, 6.8, 0.86, 2.4, color=VERMILLION, edge="none")
    _arrow(axes, (16.7, 4.9), (16.7, 6.7), color=VERMILLION)
    _text(axes, 3.5, 3.7, "a thread: lane 5 of warp 3, threadIdx.x = 3 * 32 + 5", color=VERMILLION)
    _text(axes, 11, 22.2, "lane 0", size=7.5, color=QUIET)
    _text(axes, 44.7, 22.2, "lane 31", size=7.5, color=QUIET, ha="right")


def _draw_hardware(axes: Axes) -> None:
    _text(axes, 53, 59, "What runs it: an H200", size=12, weight="bold")
    for shift in (2, 1, 0):
        _box(axes, 53 + 0.8 * shift, 27.5 + 0.8 * shift, 37, 27, color=PAPER)
    _text(axes, 54.5, 52.3, "multiprocessor (SM), one of 132", color=QUIET)
    _box(axes, 54.5, 44.7, 7.6, 5.4, color=BLOCKS[1])
    _text(axes, 58.3, 47.4, "block 1", ha="center", color="white")
    _text(axes, 63.5, 48.7, "and others: at most 32 blocks and", size=8.5)
    _text(axes, 63.5, 46.4, "2048 threads (64 warps) at a time", size=8.5)
    rows = (
        (39.4, "4 warp schedulers, arithmetic units, tensor cores"),
        (34.3, "65536 registers of 4 bytes, divided among threads"),
        (29.2, "256 KiB: L1 cache, and each block's shared memory"),
    )
    for bottom, words in rows:
        _box(axes, 54.5, bottom, 34, 4.2, color=ON_CHIP)
        _text(axes, 55.5, bottom + 2.1, words, size=8.5)

    _arrow(axes, (71.5, 27.5), (71.5, 22.6), both=True)
    _text(axes, 73, 25, "sectors of 32 bytes", color=QUIET)
    _box(axes, 53, 16.5, 38.6, 6, color=L2)
    _text(axes, 54.5, 19.5, "L2 cache: 60 MiB, for all multiprocessors")
    _arrow(axes, (71.5, 16.5), (71.5, 11.6), both=True)
    _text(axes, 73, 14, "a copy moves about 4300 GB/s", color=QUIET)
    _box(axes, 53, 2, 38.6, 9.5, color=DRAM)
    _text(axes, 54.5, 8.4, "HBM, the DRAM of this GPU: 141 GB")
    _text(axes, 54.5, 5, "global memory: here the tensors are", color=QUIET)

    _text(axes, 94.5, 57.5, "time to get", size=8.5, color=QUIET)
    _text(axes, 94.5, 55.4, "a number from", size=8.5, color=QUIET)
    for middle, words in (
        (36.4, "at once"),
        (31.3, "about 20 ns"),
        (19.5, "about 150 ns"),
        (6.7, "350 ns and more"),
    ):
        _text(axes, 94.5, middle, words)


def _box(
    axes: Axes,
    left: float,
    bottom: float,
    width: float,
    height: float,
    color: str = "white",
    edge: str = "0.6",
) -> None:
    axes.add_patch(
        Rectangle((left, bottom), width, height, facecolor=color, edgecolor=edge, linewidth=0.9)
    )


def _text(axes: Axes, x: float, y: float, words: str, size: float = 9, **look: object) -> None:
    axes.text(x, y, words, fontsize=size, **{"va": "center", "color": INK, **look})


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    color: str = QUIET,
    both: bool = False,
) -> None:
    style = "<|-|>" if both else "-|>"
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle=style, mutation_scale=11, color=color, shrinkA=0, shrinkB=0
        )
    )


def plot_roofline(table: "DataFrame") -> Figure:
    """Arithmetic rate against intensity: the measured points, and the two limits that they show.

    table: what `time_calls` returned on a GPU, with the columns intensity (operations a byte) and
    tflops (10^12 operations a second).
    """
    copy = table.attrs["copy_gb_per_s"]
    highest, last = table["tflops"].max(), table["intensity"].max()
    ridge = 1e3 * highest / copy
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (5.4, 3.2))
        first = table["intensity"].min()
        axes.plot(
            [first, ridge], [1e-3 * copy * first, highest],
            label=f"memory: copy, {copy:.0f} GB/s", **drawing.COPY_LINE,
        )  # fmt: skip
        axes.plot(
            [ridge, last], [highest] * 2, color="0.35", linewidth=1.2, linestyle=":",
            label=f"arithmetic: the most measured, {highest:.0f} TFLOP/s",
        )  # fmt: skip
        axes.plot(table["intensity"], table["tflops"], "o", color=BLUE, label="measured")
        axes.set(xscale="log", yscale="log")
        axes.set_xlabel("arithmetic intensity (operations a byte)")
        axes.set_ylabel("10¹² operations a second")
        drawing.log_ticks(axes.xaxis, table["intensity"])
        drawing.log_ticks(axes.yaxis, table["tflops"])
        facts = table.attrs
        caption = f"{plots.machine(facts)}\n{facts['clock']}, {facts['date']}"
        title = f"Roofline: the ridge is at {ridge:.0f} operations a byte"
        axes.legend(loc="lower right")
        return drawing.finish(figure, title, caption, legend=False)
