"""Pictures of chapter 11: wide rows."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from lab import figure as drawing

ROOM, MARK = "#A9D3EE", "#D55E00"
LOOKS = {  # colour, marker, width of the line
    "eager": ("#E69F00", "s", 1.5),
    "online": ("#7FBCE6", "o", 1.5),
    "vector": ("#0072B2", "v", 5),
    "cluster": ("#005187", "^", 3),
    "stream": ("#00305C", "D", 1.5),
}


def places(rooms: dict[str, int], row: int) -> Figure:
    """The bytes that each place has for a row, beside a row of so many bytes."""
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (6.6, 2.2))
        for at, room in enumerate(rooms.values()):
            axes.barh(at, room, color=ROOM, height=0.6)
            columns = f"{room // 4:,} float32 or {room // 2:,} bfloat16"
            axes.text(1.1 * room if at == 0 else 290, at, columns, va="center", fontsize=8)
        axes.axvline(row, color=MARK, linewidth=1.2)
        axes.text(1.06 * row, -0.68, f"{row // 4} float32", color=MARK, fontsize=8)
        axes.set_xscale("log", base=2)
        ticks = {f"{size} KiB": size << 10 for size in (1, 4, 16, 64, 256)} | {"1 MiB": 1 << 20}
        axes.set_xticks(list(ticks.values()), ticks)
        axes.set(xlim=(256, 4 << 20), ylim=(len(rooms) - 0.4, -0.7))
        axes.set_yticks(range(len(rooms)), rooms)
        axes.grid(False)
        return drawing.finish(figure, "How wide a row each place holds", "")


def cliffs(
    widths: Sequence[int],
    measured: dict[str, dict[str, Sequence[float]]],
    predicted: dict[str, dict[str, dict[int, float]]],
    ends: dict[str, dict[str, int]],
    ylabel: str,
) -> Figure:
    """Percent of a copy by width, a panel for each case, over bands that say where a row is kept.

    predicted: by case and version, at widths of its own. ends: by case, the widest row that each
    place holds.
    """
    with drawing.style():
        figure, panels = drawing.grid(2, 2, (4.2, 2.5), sharex=True, sharey=True)
        flat = [axes for row in panels for axes in row]
        for axes, (case, lines) in zip(flat, measured.items(), strict=True):
            left, right = 0.8 * widths[0], 1.25 * widths[-1]
            begin = left
            for n, (place, end) in enumerate([*ends[case].items(), ("partly", right)]):
                end = min(end, right)
                if end > begin:
                    axes.axvspan(begin, end, color="0.5", alpha=0.1 * n, linewidth=0, label=place)
                    begin = end
            for version, points in predicted[case].items():
                color = LOOKS[version][0]
                label = f"predicted: {version}"
                axes.plot(*zip(*points.items(), strict=True), ":", color=color, label=label)
            for name, values in lines.items():
                color, marker, width = LOOKS[name]
                look = {"color": color, "marker": marker, "linewidth": width, "markersize": 5}
                axes.plot(widths, values, label=name, **look)
            axes.set_xscale("log", base=2)
            axes.set_xticks(widths[::2], [drawing.short(cols) for cols in widths[::2]])
            axes.set(xlim=(left, right), ylim=(0, 112), title=case)
        for row in panels:
            row[0].set_ylabel(ylabel)
        for axes in panels[-1]:
            axes.set_xlabel("columns")
        return drawing.finish(figure, "The cliff", "shades: where the row is kept")
