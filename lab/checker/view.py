"""Figures of the counts in a report of `lab.check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from pandas import DataFrame

from lab.style import drawing

PALE = "#D6E9F8"


def plot_lanes(
    traffic: DataFrame,
    line: int,
    file: str | None,
    tensor: str | None,
    text_of: Callable[[str, int], str],
) -> Figure:
    """The costliest request at a line: which lane asks for which bytes of which sector or bank.

    text_of: returns the text of a line, by its file and number.
    """
    rows = traffic[traffic["line"] == line]
    if file is not None:
        rows = rows[rows["file"] == file]
    if tensor is not None:
        rows = rows[rows["tensor"] == tensor]
    if rows.empty:
        known = ", ".join(f"{it.file}:{it.line}" for it in traffic.itertuples())
        raise ValueError(f"line: nothing is read or written at {line}; it is at {known or 'none'}")
    it = rows.loc[rows["worst"].idxmax()]
    shared = it["memory"] == "shared"
    wanted = [
        (lane, at, at + it["size"]) for lane, at in enumerate(it["example"]) if at is not None
    ]
    width = 4 if shared else 32  # bytes of a column: a bank's word, or a sector
    touched = sorted(
        {unit for _, at, end in wanted for unit in range(at // width, -(-end // width))}
    )
    columns = range(32) if shared else range(len(touched))
    place = {unit: unit % 32 if shared else i for i, unit in enumerate(touched)}
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (max(5.0, 0.22 * len(columns)), 4.6))
        for lane, at, end in wanted:
            for unit in range(at // width, -(-end // width)):
                first, last = max(at, unit * width), min(end, (unit + 1) * width)
                left = place[unit] + (first - unit * width) / width
                axes.broken_barh([(place[unit], 1)], (lane, 1), color=PALE)
                axes.broken_barh([(left, (last - first) / width)], (lane, 1), color=drawing.BLUE)
        axes.set_xlim(0, len(columns))
        axes.set_ylim(32, 0)
        axes.set_xticks(range(0, len(columns) + 1, 1 if len(columns) <= 16 else 4))
        axes.set_xlabel(
            "bank of shared memory" if shared else f"{len(touched)} sectors of 32 bytes"
        )
        axes.set_ylabel("lane of the warp")
        cost = (
            f"{it['passes'] / it['requests']:.1f} passes per request,"
            f" {(it['passes'] - it['bank_conflicts']) / it['requests']:.1f} without conflicts"
            if shared
            else f"{it['sectors'] / it['requests']:.1f} sectors per request,"
            f" {it['ideal_sectors'] / it['requests']:.1f} would do"
        )
        title = f"{Path(it['file']).name}:{line}: {it['access']} of {it['tensor']}"
        return drawing.finish(figure, title, f"{cost}; {text_of(it['file'], line).strip()}")


def plot_bytes(table: DataFrame, title: str, caption: str) -> Figure:
    """Bytes moved for each tensor, and the minimum: each byte that it needs, once."""
    floor = (table["bytes_read"] + table["bytes_written"]).where(table["counts"])
    with drawing.style():
        figure, ((axes,),) = drawing.grid(1, 1, (5.0, 0.8 + 0.4 * len(table)))
        axes.barh(table.index, table["bytes_moved"], color=PALE, label="moved")
        label = "what blocks share counted once"
        axes.barh(table.index, table["bytes_fetched"], 0.5, color=drawing.BLUE, label=label)
        axes.plot(floor, table.index, "|", color="0.1", markersize=18, label="floor")
        axes.set_yticks(table.index, table["tensor"])
        axes.invert_yaxis()
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(EngFormatter("B"))
        axes.set_xlabel("global memory")
        return drawing.finish(figure, title, caption)
