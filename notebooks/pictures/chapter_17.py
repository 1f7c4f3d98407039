"""Pictures of chapter 17: which tiles of scores a causal mask leaves, and who works when."""

from collections.abc import Sequence

import numpy
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lab.style import drawing
from lab.style.drawing import BLUE, GREEN, ORANGE, PURPLE, VERMILLION

KINDS = {
    "q kᵀ": BLUE,
    "p v, then q kᵀ": PURPLE,
    "softmax": VERMILLION,
    "softmax beside p v": ORANGE,
    "p v": GREEN,
}
Work = tuple[str, float, float]  # one of KINDS, its begin, its end


def causal_tiles(tokens: int, rows: int, keys: int) -> Figure:
    """Each tile of rows x keys: seen by all of its rows, by some, or by none."""
    colors = {"skipped": "0.93", "masked score by score": "#B9D9EE", "computed as it is": BLUE}
    row = numpy.arange(0, tokens, rows)[:, None]
    key = numpy.arange(0, tokens, keys)[None]
    state = (key <= row + rows - 1).astype(int) + (key + keys - 1 <= row)
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (4.6, 3.4))
        axes.imshow(state, cmap=ListedColormap([*colors.values()]), vmin=0, vmax=2,
                    extent=(0, tokens, tokens, 0), aspect="equal")  # fmt: skip
        axes.set_xticks(range(0, tokens + 1, keys))
        axes.set_yticks(range(0, tokens + 1, rows))
        axes.tick_params(labelsize=7)
        axes.grid(True, color="white", linewidth=1.2)
        axes.set(xlabel="key", ylabel="row")
        patches = [Patch(color=color, label=name) for name, color in colors.items()]
        axes.legend(handles=patches, bbox_to_anchor=(1.02, 1), loc="upper left", frameon=False)
        return drawing.finish(figure, "Tiles of scores under a causal mask", "")


def timeline(cases: dict[str, dict[str, Sequence[Work]]], unit: str) -> Figure:
    """For each case a picture, and in it a lane for each warpgroup with what it does, and when."""
    with drawing.style():
        height = 0.75 + 0.4 * max(len(lanes) for lanes in cases.values())
        figure, panels = drawing.grid(len(cases), 1, (7.4, height))
        last = max(work[2] for lanes in cases.values() for lane in lanes.values() for work in lane)
        for (axes,), (title, lanes) in zip(panels, cases.items(), strict=True):
            for at, works in enumerate(lanes.values()):
                for kind, begin, end in works:
                    axes.barh(at, end - begin, 0.66, begin, color=KINDS[kind], edgecolor="white")
            axes.set_yticks(range(len(lanes)), lanes)
            axes.set(xlim=(0, last), ylim=(len(lanes) - 0.5, -0.5))
            axes.set_title(title, loc="left", fontsize=9)
            axes.grid(False)
        axes.set_xlabel(unit)
        shown = {work[0] for lanes in cases.values() for lane in lanes.values() for work in lane}
        patches = [Patch(color=KINDS[kind], label=kind) for kind in KINDS if kind in shown]
        panels[0][0].legend(handles=patches, ncols=len(patches), loc="lower right", frameon=False,
                            bbox_to_anchor=(1, 1))  # fmt: skip
        return drawing.finish(figure, "What the warpgroups of a block do", "")
