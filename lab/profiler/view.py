"""A report of `lab.profile` as HTML for a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pandas import isna

from lab.checker.page import AROUND, BAD, CELL, CODE, GOOD
from lab.profiler import stalls, text

if TYPE_CHECKING:
    from lab.profiler.report import Profile

TABLE = (
    "font-family: monospace; font-size: var(--jp-code-font-size, 13px); border-collapse: collapse"
)
WASTEFUL = 1.25  # a figure is red from this multiple of the fewest sectors or passes
REASONS = 3  # reasons in a line's tooltip


def page(profile: Profile) -> str:
    """The headline, a card for each launch, and the sources with a column of heat."""
    parts = [f"<p><b>{html.escape(profile.headline)}</b></p>"]
    parts += [card(row) for row in profile.kernels.to_dict("records")]
    if profile.note:
        parts.append(f"<p>{html.escape(profile.note)}</p>")
    for file in sorted(set(profile.lines["file"])):
        parts.append(f"<p>{html.escape(file)}</p>{_source(profile, file)}")
    parts.append(_counts(profile))
    return "".join(parts)


def card(row: dict[str, Any]) -> str:
    """One launch: its name and time, and bars for what it uses of the peaks."""
    bars = (
        ("memory", row["memory"], f"DRAM {text.percent(row['dram'])}"),
        ("arithmetic", row["compute"], ""),
        ("tensor cores", row["tensor"], ""),
        ("occupancy", row["achieved"], f"of {text.percent(row['occupancy'])} possible"),
    )
    rows = "".join(_bar(*bar) for bar in bars)
    limit = _escaped("; ".join(text.limits(row)))
    below = f"<div style='opacity: 0.75'>{limit}</div>" if limit else ""
    return (
        "<div style='margin: 0.6em 0 1em 0; padding: 0.1em 0 0.1em 0.8em; border-left: 3px solid"
        f" rgb({GOOD})'><div><code style='background: none'><b>{_escaped(row['kernel'])}</b></code>"
        f" &nbsp;{text.time(row)}, {_escaped(text.shape(row))}</div>"
        f"<table style='border-collapse: collapse; margin: 0.3em 0'>{rows}</table>{below}</div>"
    )


def _bar(name: str, value: float | None, more: str) -> str:
    known = 0.0 if value is None or isna(value) else min(max(value, 0.0), 100.0)
    cell = "padding: 1px 0.8em 1px 0; border: none; text-align: left; white-space: nowrap"
    return (
        f"<tr style='background: none'><td style='{cell}'>{name}</td>"
        f"<td style='{cell}'><div style='width: 16em; height: 0.7em; border-radius: 2px;"
        " background: rgba(128, 128, 128, 0.25)'>"
        f"<div style='width: {known:.1f}%; height: 100%; border-radius: 2px;"
        f" background: rgb({GOOD})'></div></div></td>"
        f"<td style='{cell}; text-align: right'>{text.percent(value)}</td>"
        f"<td style='{cell}; opacity: 0.75'>{more}</td></tr>"
    )


def _source(profile: Profile, file: str) -> str:
    titles = ["line", "samples", "wait for", "instructions", "sectors (ideal)", "passes (ideal)"]
    head = "".join(f"<th style='{CELL}'>{title}</th>" for title in titles)
    rows = "".join(_rows(profile, file))
    return f"<table style='{TABLE}'><tr>{head}<th></th></tr>{rows}</table>"


def _rows(profile: Profile, file: str) -> Iterator[str]:
    """The lines that matter, with their neighbours."""
    known = {int(row["line"]): row for row in text.shown_lines(profile) if row["file"] == file}
    hottest = max((row["share"] for row in text.shown_lines(profile)), default=0.0)
    before = 0
    for number, code in enumerate(profile.source(file), 1):
        if not any(abs(number - line) <= AROUND for line in known):
            continue
        if before and number != before + 1:
            yield f"<tr><td style='{CELL}'>⋮</td></tr>"
        before = number
        yield _row(profile, file, number, code, known.get(number), hottest)


def _row(
    profile: Profile, file: str, number: int, code: str, row: dict[str, Any] | None, hottest: float
) -> str:
    cells = [f"<td style='{CELL}; opacity: 0.6'>{number}</td>"]
    if row is None:
        cells += [f"<td style='{CELL}'></td>"] * 5
    else:
        heat = row["share"] / hottest if hottest else 0.0
        hot = f"background: rgba({BAD}, {0.65 * heat:.2f})"
        why = _escaped(_reasons(profile, file, number))
        waits = f"{row['reason']} {row['reason_share']:.0%}" if row["reason"] else ""
        cells += [
            f"<td style='{CELL}; {hot}' title='{why}'>{row['share']:.1%}</td>",
            f"<td style='{CELL}' title='{why}'>{_escaped(waits)}</td>",
            f"<td style='{CELL}; opacity: 0.75'>{row['instructions']:,}</td>",
            _cost(row["sectors"], row["ideal_sectors"], row["requests"]),
            _cost(row["passes"], row["ideal_passes"], row["shared_requests"]),
        ]
    return f"<tr>{''.join(cells)}<td style='{CODE}'>{html.escape(code)}</td></tr>"


def _cost(taken: int, ideal: int, requests: int) -> str:
    color = BAD if taken > WASTEFUL * ideal else GOOD
    look = f"{CELL}; color: rgb({color})" if requests else CELL
    return f"<td style='{look}'>{text.ratio(taken, ideal, requests)}</td>"


def _counts(profile: Profile) -> str:
    """The GPU's counts, and beside them the checker's if they differ."""
    if not (said := text.counts_headline(profile)):
        return ""
    titles = ["line", "memory", *(name.replace("_", " ") for name in text.COUNTS)]
    head = "".join(f"<th style='{CELL}'>{title}</th>" for title in titles)
    rows = []
    for where, memory, cells in text.counts(profile):
        colors = ("" if same else f"; color: rgb({BAD})" for _, same in cells)
        counted = "".join(
            f"<td style='{CELL}{color}'>{cell}</td>"
            for (cell, _), color in zip(cells, colors, strict=True)
        )
        named = f"<td style='{CELL}'>{_escaped(where)}</td><td style='{CELL}'>{memory}</td>"
        rows.append(f"<tr>{named}{counted}</tr>")
    return f"<p>{said}</p><table style='{TABLE}'><tr>{head}</tr>{''.join(rows)}</table>"


def _reasons(profile: Profile, file: str, line: int) -> str:
    """What warps wait for at a line, and what may help: for a tooltip."""
    reasons = profile.reasons(file, line)
    whole = sum(reasons.values())
    return "\n".join(
        f"{count / whole:.0%} {stalls.what(key)}: {stalls.why(key)}"
        for key, count in reasons.most_common(REASONS)
    )


def _escaped(said: str) -> str:
    return html.escape(said, quote=True)
