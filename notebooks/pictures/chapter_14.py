"""Pictures of chapter 14: tiles."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lab.style import drawing

PAPER, READ, TILE, THREAD = "0.95", "#A9D3EE", "#0072B2", "#D55E00"
ROOF, LIBRARY = "0.35", "#E69F00"


def tiles(side: int, rows: int, units: int, depth: int, step: int, each: int) -> Figure:
    """Whose elements a block reads: x at the left of y, w above it, and what they have in common.

    side: of the block's tile of y. step: of depth, the part in shared memory at a time. each: rows
    and columns of y that a thread has.
    """
    gap, first = 18, 2 * step  # of depth, that have been used already
    row, unit = side, side  # where the block's tile begins
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (5.4, 4.2))
        box(axes, 0, 0, depth, rows, PAPER)
        box(axes, depth + gap, -gap - depth, units, depth, PAPER)
        box(axes, depth + gap, 0, units, rows, PAPER)

        box(axes, 0, row, depth, side, READ)
        box(axes, depth + gap + unit, -gap - depth, side, depth, READ)
        box(axes, first, row, step, side, TILE)
        box(axes, depth + gap + unit, -gap - depth + first, side, step, TILE)
        box(axes, depth + gap + unit, row, side, side, TILE)

        at_row, at_unit = row + side // 2, unit + side // 2
        box(axes, depth + gap + at_unit, at_row, each, each, THREAD)
        box(axes, first, at_row, step, each, THREAD)
        box(axes, depth + gap + at_unit, -gap - depth + first, each, step, THREAD)

        name(axes, depth / 2, rows + 9, "x [rows, depth]")
        name(axes, depth + gap + units / 2, rows + 9, "y [rows, units]")
        name(
            axes, depth + gap + units + 4, -gap - depth / 2, "w [units, depth],\ntransposed", "left"
        )
        labels = {
            READ: "what a block reads, in the end",
            TILE: f"its tiles: {side} x {side} of y in registers,\n{step} of k in shared memory",
            THREAD: f"a thread: {each} x {each} of y, and for each k\n{each} + {each} elements",
        }
        for color, label in labels.items():
            axes.bar(0, 0, color=color, label=label)
        axes.set(xlim=(-4, depth + gap + units + 52), ylim=(rows + 16, -gap - depth - 4))
        axes.set_aspect("equal")
        axes.axis("off")
        return drawing.finish(figure, "Who reads what for a tile of y", "")


def box(axes: Axes, left: float, top: float, width: float, height: float, color: str) -> None:
    look = {"facecolor": color, "edgecolor": "0.6", "linewidth": 0.8}
    axes.add_patch(Rectangle((left, top), width, height, **look))


def name(axes: Axes, x: float, y: float, words: str, side: str = "center") -> None:
    axes.text(x, y, words, ha=side, va="center", fontsize=9)


class Memory(NamedTuple):
    """A panel of the roofline: how fast a memory is, and what each version does for its bytes."""

    title: str
    bandwidth: float  # 10^12 bytes a second
    intensity: dict[str, float]  # operations a byte, by version


def roofline(
    memories: Sequence[Memory],
    peak: float,
    measured: dict[str, float],
    library: float | None,
    caption: str,
) -> Figure:
    """A panel for each memory: its roof, and the versions under it, in 10^12 operations a second.

    measured: by version; where there is none, the place on the roof is drawn, hollow. library: what
    a library's product reaches, as a line.
    """
    versions = list(dict.fromkeys(name for each in memories for name in each.intensity))
    with drawing.style():
        figure, (panels,) = drawing.grid(1, len(memories), (4.4, 3.4), sharey=True)
        for axes, (title, bandwidth, intensity) in zip(panels, memories, strict=True):
            ridge = peak / bandwidth
            ends = min(*intensity.values(), ridge) / 2.5, max(*intensity.values(), ridge) * 4
            roof = [bandwidth * ends[0], peak, peak]
            label = f"roof: {peak:.0f} · 10¹² operations a second"
            axes.plot([ends[0], ridge, ends[1]], roof, color=ROOF, linewidth=1.2, label=label)
            at = 1.3 * ends[0]
            place = {"xy": (at, bandwidth * at), "xytext": (8, -6), "textcoords": "offset points"}
            axes.annotate(f"{bandwidth:.1f} TB/s", fontsize=8, color=ROOF, **place)
            axes.axvline(ridge, color=ROOF, linewidth=0.8, linestyle=":")
            if library:
                look = {"color": LIBRARY, "linewidth": 1.2, "label": "PyTorch's product"}
                axes.axhline(library, linestyle="--", **look)
            for version, of in intensity.items():
                look = drawing.look(f"ours:{version}", versions) | {"linestyle": ""}
                attainable = min(peak, of * bandwidth)
                if measured:
                    axes.plot([of, of], [measured[version], attainable], color="0.8", zorder=1)
                    axes.plot(of, measured[version], label=version, **look)
                hollow = {"markerfacecolor": "white", "label": None if measured else version}
                axes.plot(of, attainable, **look | hollow)
            axes.set(xscale="log", yscale="log", xlim=ends, title=title)
            axes.set_xlabel(f"operations a byte; the ridge is at {ridge:.2g}")
            low, high = axes.get_ylim()
            axes.set_ylim(low, max(high, 2 * peak))
            drawing.log_ticks(axes.xaxis, ends)
            drawing.log_ticks(axes.yaxis, axes.get_ylim())
        panels[0].set_ylabel("10¹² operations a second")
        return drawing.finish(figure, "Roofline of the versions", caption)
