"""Memory access patterns: threads simulated in Python, and a picture of their accesses."""

from collections.abc import Callable, Iterable

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lab.style import drawing

SECTOR = 32  # bytes that memory moves at once
ROOM = 80  # elements side by side that leave room for a thread's number

Reads = Callable[[int, int], Iterable[int]]


def plot_access(
    patterns: dict[str, Reads],
    *,
    threads: int,
    steps: int,
    itemsize: int | None = 4,
    row: str = "step",
    column: str = "element",
) -> Figure:
    """Which elements each thread reads at each step: a panel for each pattern.

    Each small box is an element of memory, with the number of the thread that reads it, in its
    colour. Vertical lines mark the borders of sectors of 32 bytes, which memory moves whole; the
    titles count these.

    patterns: functions reads(thread, step) that return element numbers, by their titles.
    itemsize: bytes of an element; None omits the sectors.
    row, column: labels for a panel's rows and columns, if not steps and elements.
    """
    places = range(threads), range(steps)
    per_sector = SECTOR // itemsize if itemsize else 1
    last = max(i for reads in patterns.values() for t in places[0] for s in places[1]
               for i in reads(t, s))  # fmt: skip
    width = -(-(last + 1) // per_sector) * per_sector
    with drawing.style():
        figure, axes = drawing.grid(len(patterns), 1, (8.2, 0.55 + 0.34 * steps))
        for (panel,), (title, reads) in zip(axes, patterns.items(), strict=True):
            _draw(panel, reads, threads, steps, numbered=width <= ROOM)
            panel.set_title(_counted(title, reads, threads, steps, itemsize) if itemsize else title)
            panel.set(xlim=(0, width), ylim=(steps, 0), ylabel=row)
            borders = range(0, width + 1, per_sector)
            for border in borders:
                panel.axvline(border, color="0.75", linewidth=0.8, zorder=0)
            panel.set_xticks(borders)
        axes[-1][0].set_xlabel(column)
        caption = f"number and colour: thread, of {threads}"
        if itemsize:
            caption += f". Elements of {itemsize} bytes, sectors of {SECTOR}"
        return drawing.finish(figure, "Who reads what", caption)


def _draw(panel: Axes, reads: Reads, threads: int, steps: int, numbered: bool) -> None:
    colors = colormaps["viridis"].resampled(threads)
    for step in range(steps):
        for thread in range(threads):
            color = colors(thread)
            ink = "white" if sum(color[:3]) < 1.5 else "black"
            for i in reads(thread, step):
                panel.add_patch(Rectangle((i, step), 1, 0.86, color=color, linewidth=0))
                if numbered:
                    middle = {"ha": "center", "va": "center"}
                    panel.text(i + 0.5, step + 0.45, str(thread), color=ink, fontsize=6.5, **middle)
    panel.grid(False)
    panel.set_yticks([step + 0.43 for step in range(steps)], range(steps))
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


def _counted(title: str, reads: Reads, threads: int, steps: int, itemsize: int) -> str:
    """The title with the number of sectors that the threads touch together, added up by step."""
    together = [{i for t in range(threads) for i in reads(t, step)} for step in range(steps)]
    moved = sum(len({i * itemsize // SECTOR for i in elements}) for elements in together)
    used = 100 * itemsize * sum(map(len, together)) / (SECTOR * moved)
    return f"{title}: {moved} sector{'s' * (moved != 1)}, {used:.0f}% of their bytes used"
