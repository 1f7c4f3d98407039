"""A report of `lab.check` as HTML for a notebook, in the colours of its theme.

Styles are inline, because a reopened notebook drops <style> elements.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pandas import DataFrame

from lab.checker import findings as told
from lab.checker import line_costs
from lab.checker.advice import costed
from lab.gpus import gpu as gpus

AROUND = 2  # lines shown above and below each relevant one
GOOD, BAD = "0, 114, 178", "213, 94, 0"  # drawing.BLUE and VERMILLION, as CSS mixes them
GRAY = "128, 128, 128"
FONT = (
    "font-family: var(--jp-code-font-family, monospace);"
    " font-size: var(--jp-code-font-size, 13px); line-height: 1.45"
)
TABLE = f"{FONT}; border-collapse: collapse; table-layout: auto; width: auto; margin: 0.2em 0 0.8em"
CELL = "padding: 0 0.9em 0 0; text-align: right; white-space: nowrap; border: none"
CODE = "padding: 0 1em 0 0.4em; text-align: left; white-space: pre; border: none"
# Text of a finding uses the theme's own colours, which have enough contrast in both themes.
LOOKS = {"error": (BAD, "--jp-error-color1"), "note": (GRAY, "--jp-ui-font-color2")}

Line = Callable[[str, int], str]


def page(
    headline: str,
    notes: list[str],
    traffic: DataFrame,
    findings: DataFrame,
    threads: DataFrame,
    source: Callable[[str], list[str]],
    below: Sequence[str] = (),
) -> str:
    """The headline, a card for each finding, and the sources with a column of heat, as HTML.

    notes: lines below the headline. source: returns the lines of a file, by its name. below: for
        each finding, HTML to append.
    """
    parts = [f"<p style='margin: 0.4em 0'><b>{html.escape(headline)}</b></p>"]
    parts += [f"<p style='margin: 0.4em 0'>{html.escape(note)}</p>" for note in notes if note]

    def line(file: str, number: int) -> str:
        lines = source(file)
        return lines[number - 1] if 0 < number <= len(lines) else ""

    rows = findings.to_dict("records")
    for row, end in zip(rows, below or [""] * len(rows), strict=True):
        parts.append(_card(row, threads, line, end))
    files = {*traffic["file"], *findings["file"]} - {"", None}
    names = "line", *line_costs.titles(line_costs.memories(traffic))
    titles = "".join(
        f"<th style='{CELL}; font-weight: normal; opacity: 0.7'>{n}</th>" for n in names
    )
    for file in sorted(files):
        rows = "".join(_lines(file, source(file), traffic, findings))
        parts.append(
            f"<p style='margin: 0.8em 0 0' title='{html.escape(file)}'>"
            f"<b>{html.escape(Path(file).name)}</b></p><div style='overflow-x: auto'>"
            f"<table style='{TABLE}'>"
            f"<tr style='background: none'>{titles}<th></th></tr>"
            f"{rows}</table></div>"
        )
    return f"<div style='max-width: 70em'>{''.join(parts)}</div>"


def _card(row: dict[str, Any], threads: DataFrame, line: Line, below: str) -> str:
    """A card with everything known about a finding."""
    color, text = LOOKS[row["severity"]]
    place = f"{Path(row['file']).name}:{row['line']}" if row["file"] else ""
    via = f" ({row['via']})" if isinstance(row["via"], str) and row["via"] else ""
    times = f"{row['count']:,} times" if row["count"] > 1 else ""
    if isinstance(row["caller_file"], str):
        via += f", called at {Path(row['caller_file']).name}:{int(row['caller_line'])}"
    head = f"<b style='color: var({text}, rgb({color}))'>{html.escape(told.title(row))}</b>"
    head += "".join(
        f"<span style='opacity: 0.75; padding-left: 1.2em'>{html.escape(it)}</span>"
        for it in (place + via, times)
        if it
    )
    code = "".join(
        f"<tr style='background: none'><td style='{CELL}; opacity: 0.6'>{number}</td>"
        f"<td style='{CODE}'>{html.escape(said.strip())}</td></tr>"
        for number, said in _ends(row, line)
    )
    lines = [html.escape(it) for it in row["message"].splitlines()]
    if row["kind"] == "timeout":
        lines += [html.escape(it) for it in told.told(threads)]
    for it in filter(None, (told.memory(row), told.who(row))):
        lines.append(f"<span style='opacity: 0.75'>{html.escape(it)}</span>")
    if hint := told.hint_for(row):
        lines.append(f"<span style='opacity: 0.75'><i>{html.escape(hint)}</i></span>")
    return (
        f"<div style='border-left: 4px solid rgb({color}); background: rgba({color}, 0.07);"
        f" padding: 0.35em 0.9em; margin: 0.5em 0; overflow-x: auto'><div>{head}</div>"
        f"<table style='{TABLE}; margin: 0.2em 0'>{code}</table>{'<br>'.join(lines)}{below}</div>"
    )


def _ends(row: dict[str, Any], line: Line) -> list[tuple[int, str]]:
    """The lines that a finding names, without repeats."""
    ends = []
    for file, number in told.ENDS:
        if isinstance(row[file], str) and row[file]:
            end = int(row[number]), line(row[file], int(row[number]))
            if end[1] and end not in ends:
                ends.append(end)
    return ends


def _lines(file: str, source: list[str], traffic: DataFrame, findings: DataFrame) -> Iterator[str]:
    """The rows of a file's table: relevant lines and their neighbours."""
    most = 0 if traffic.empty else traffic.groupby(["file", "line"])["bytes_moved"].sum().max()
    memories = line_costs.memories(traffic)
    traffic, findings = traffic[traffic["file"] == file], findings[findings["file"] == file]
    matter = {int(line) for line in (*traffic["line"], *findings["line"])}
    width = 1 + len(line_costs.titles(memories))
    before, gpu = 0, gpus.load()
    for number, text in enumerate(source, 1):
        if not any(abs(number - line) <= AROUND for line in matter):
            continue
        if number != before + 1 and before:
            yield f"<tr style='background: none'><td style='{CELL}; opacity: 0.6'>⋮</td></tr>"
        before = number
        wrong = findings[findings["line"] == number]
        here = traffic[traffic["line"] == number]
        yield _line(number, text, here, memories, most, wrong)
        notes = [(LOOKS[row["severity"]], told.title(row)) for row in wrong.to_dict("records")]
        notes += [
            (LOOKS["note"], f"{row['access']} of {row['tensor']}: {costed(row, gpu)}")
            for row in here.to_dict("records")
            if row["advice"]
        ]
        for (color, variable), said in dict.fromkeys(notes):
            yield (
                f"<tr style='background: none'><td colspan='{width}'></td><td style='{CODE};"
                f" color: var({variable}, rgb({color}))'>{' ' * _indent(text)}↑ {html.escape(said)}"
                "</td></tr>"
            )


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _line(
    number: int,
    text: str,
    traffic: DataFrame,
    memories: list[str],
    most: float,
    wrong: DataFrame,
) -> str:
    costs = {memory: line_costs.cost(traffic, memory) for memory in memories}
    color = BAD if any(cost.wasteful for cost in costs.values()) else GOOD
    heat = traffic["bytes_moved"].sum() / most if most else 0
    severity = "error" if "error" in set(wrong["severity"]) else "note"
    look = "none" if wrong.empty else f"rgba({LOOKS[severity][0]}, 0.12)"
    cells = [f"<td style='{CELL}; opacity: 0.6'>{number}</td>"]
    for memory, cost in costs.items():
        if memory == "global":
            hot = f"background: rgba({color}, {0.6 * heat:.2f})"
            cells.append(f"<td style='{CELL}; {hot}'>{line_costs.moved(traffic)}</td>")
        bold = "; font-weight: bold" if cost.wasteful else ""
        cells.append(f"<td style='{CELL}{bold}'>{cost}</td>")
    cells.append(f"<td style='{CODE}'>{html.escape(text)}</td>")
    return f"<tr style='background: {look}'>{''.join(cells)}</tr>"
