"""A report of `lab.check` as HTML for a notebook, and as figures."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from pandas import DataFrame

from lab.checker import line_costs
from lab.figure import drawing

AROUND = 2  # lines shown above and below one that matters
GOOD, BAD = "0, 114, 178", "213, 94, 0"  # drawing.BLUE and VERMILLION, as CSS mixes them
PALE = "#D6E9F8"
CELL = "padding: 0 0.8em 0 0; text-align: right; white-space: nowrap; border: none"
CODE = "padding: 0; text-align: left; white-space: pre; border: none"


def page(
    headline: str,
    traffic_line: str,
    traffic: DataFrame,
    findings: DataFrame,
    source: Callable[[str], list[str]],
) -> str:
    """The headline, the findings and the sources with a column of heat, as HTML.

    source: gives the lines of a file, by its name.
    """
    parts = [f"<p><b>{html.escape(headline)}</b></p>"]
    if not traffic.empty:
        parts.append(f"<p>{html.escape(traffic_line)}</p>")
    names = "line", *line_costs.titles(line_costs.memories(traffic))
    titles = "".join(f"<th style='{CELL}'>{name}</th>" for name in names)
    for file in sorted({*traffic["file"], *findings["file"]} - {"", None}):
        rows = "".join(_lines(file, source(file), traffic, findings))
        parts.append(
            f"<p>{html.escape(file)}</p><table style='font-family: monospace; font-size:"
            f" var(--jp-code-font-size, 13px); border-collapse: collapse'><tr>"
            f"{titles}<th></th></tr>{rows}</table>"
        )
    parts += [
        f"<p>{html.escape(str(row['kind']))}: {html.escape(str(row['message']))}</p>"
        for row in findings.to_dict("records")
        if not row["file"]
    ]
    return "".join(parts)


def _lines(file: str, source: list[str], traffic: DataFrame, findings: DataFrame) -> Iterator[str]:
    """The rows of a file's table: lines that matter, with their neighbours."""
    most = traffic.groupby(["file", "line"])["bytes_moved"].sum().max()
    most = 0 if traffic.empty else most
    memories = line_costs.memories(traffic)
    traffic, findings = traffic[traffic["file"] == file], findings[findings["file"] == file]
    matter = {int(line) for line in (*traffic["line"], *findings["line"])}
    width = 1 + len(line_costs.titles(memories))
    before = 0
    for number, text in enumerate(source, 1):
        if not any(abs(number - line) <= AROUND for line in matter):
            continue
        if number != before + 1 and before:
            yield f"<tr><td style='{CELL}'>⋮</td></tr>"
        before = number
        wrong = findings[findings["line"] == number]
        here = traffic[traffic["line"] == number]
        yield _line(number, text, here, memories, most, not wrong.empty)
        for row in wrong.to_dict("records"):
            said = html.escape(f"{row['kind']}: {row['message']}")
            yield (
                f"<tr><td colspan='{width}'></td>"
                f"<td style='{CODE}; color: rgb({BAD})'>  {said}</td></tr>"
            )


def _line(
    number: int, text: str, traffic: DataFrame, memories: list[str], most: float, is_wrong: bool
) -> str:
    costs = {memory: line_costs.cost(traffic, memory) for memory in memories}
    color = BAD if any(cost.wasteful for cost in costs.values()) else GOOD
    heat = traffic["bytes_moved"].sum() / most if most else 0
    look = f"background: rgba({BAD}, 0.12)" if is_wrong else ""
    cells = [f"<td style='{CELL}; opacity: 0.6'>{number}</td>"]
    for memory, cost in costs.items():
        if memory == "global":
            hot = f"background: rgba({color}, {0.6 * heat:.2f})"
            cells.append(f"<td style='{CELL}; {hot}'>{line_costs.moved(traffic)}</td>")
        colored = f"; color: rgb({BAD if cost.wasteful else GOOD})" if cost.requests else ""
        cells.append(f"<td style='{CELL}{colored}'>{cost}</td>")
    return f"<tr style='{look}'>{''.join(cells)}<td style='{CODE}'>{html.escape(text)}</td></tr>"


def plot_lanes(
    traffic: DataFrame,
    line: int,
    file: str | None,
    tensor: str | None,
    text_of: Callable[[str, int], str],
) -> Figure:
    """The costliest request at a line: which lane asks for which bytes of which sector or bank.

    text_of: gives a line, by its file and number.
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
    width = 4 if shared else 32  # of a column: a bank's word, or a sector
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
    """Bytes that were moved for each tensor, and the floor: each byte that it needs, once."""
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
