"""Pictures of chapter 15: tensor cores."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lab.style import drawing
from lab.style.drawing import BLUE

PIECES = [
    *("#0072B2", "#E69F00", "#009E73", "#D55E00"),
    *("#CC79A7", "#56B4E9", "#F0E442", "#999999"),
]
SMALL = 6.5  # points


def banks(layouts: dict[str, Callable[[int, int], int]], piece: int) -> Figure:
    """Where the pieces of 16 bytes of a tile's first eight rows stand, and what ldmatrix asks for.

    layouts: by title, a function that gives the byte at which (row, byte of the row) stands.
    """
    with drawing.style():
        figure, (panels,) = drawing.grid(1, len(layouts), (4.3, 2.7), sharey=True)
        for axes, (title, at) in zip(panels, layouts.items(), strict=True):
            for row in range(8):
                for i in range(8):
                    line, byte = divmod(at(row, 16 * i), 128)
                    asked = i == piece
                    color = PIECES[i] if asked else faint(PIECES[i])
                    cell(axes, byte // 16, line, color, f"row {row}\npiece {i}", "0.1", asked)
            taken = {at(row, 16 * piece) % 128 for row in range(8)}
            passes = 8 // len(taken)
            axes.set(xlim=(-0.05, 8.05), ylim=(8.05, -0.05))
            axes.set_title(f"{title}: {passes} pass{'es' if passes > 1 else ''} for 8 rows")
            axes.set_xticks([i + 0.5 for i in range(8)], [f"{4 * i}-{4 * i + 3}" for i in range(8)])
            axes.set_xlabel("banks")
            axes.set_yticks([line + 0.5 for line in range(8)], [128 * line for line in range(8)])
            bare(axes)
        panels[0].set_ylabel("byte of the tile")
        caption = f"framed: piece {piece} of eight rows, which ldmatrix reads at once"
        return drawing.finish(figure, "Eight rows of a tile in shared memory", caption)


def cell(
    axes: Axes, left: float, top: float, color: str, words: str, ink: str, framed: bool = False
) -> None:
    look = {"edgecolor": "0.1" if framed else "white", "linewidth": 1.6 if framed else 0.6}
    axes.add_patch(Rectangle((left, top), 1, 1, facecolor=color, zorder=1 + framed, **look))
    place = {"ha": "center", "va": "center", "zorder": 3}
    axes.text(left + 0.5, top + 0.5, words, color=ink, fontsize=SMALL, **place)


def faint(color: str) -> tuple[float, ...]:
    return tuple(0.72 + 0.28 * part for part in to_rgb(color))


def bare(axes: Axes) -> None:
    axes.tick_params(length=0, labelsize=8)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def bias(
    depths: Sequence[int], lines: dict[str, Sequence[float]], title: str, ylabel: str
) -> Figure:
    """Lines over the depth, which is logarithmic, around 0."""
    looks = [
        {"color": BLUE, "marker": "o"},
        {"color": "#E69F00", "marker": "s"},
        {"color": "0.35", "linestyle": ":"},
    ]
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (5.4, 2.8))
        for look, (label, values) in zip(looks, lines.items(), strict=True):
            axes.plot(depths, values, label=label, **look)
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xticks(depths, depths)
        axes.set(xlabel="depth", ylabel=ylabel)
        return drawing.finish(figure, title, "")
