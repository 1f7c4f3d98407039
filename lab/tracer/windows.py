"""Selects the steps of a block to record, if not all are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.checker.report import Report
from lab.tracer.record import Recorded

STATEMENT = 64  # lines of one that are looked at
Spans = tuple[tuple[int, int], ...]


def around(points: list[int], steps: int) -> Spans:
    """Spans around these points that share `steps`; a single span if the points are close."""
    points = sorted(set(points))
    if points[-1] - points[0] < steps:
        first = max(0, points[0] - (steps - 1 - (points[-1] - points[0])) // 2)
        return ((first, max(first + steps, points[-1] + 1)),)
    each = max(1, steps // len(points))
    spans: list[tuple[int, int]] = []
    for point in points:
        first = max(0, point - (each - 1) // 2)
        if spans and first <= spans[-1][1]:
            first = spans.pop()[0]
        spans.append((first, point + each - (each - 1) // 2))
    return tuple(spans)


def lines_of(row: dict[str, Any]) -> list[tuple[str, int]]:
    """File and line of each access that a finding is about, its own first."""
    ends = [(row[f"{of}file"], row[f"{of}line"]) for of in ("", "other_")]
    return [(file, int(line)) for file, line in ends if isinstance(file, str) and file]


def same(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The same finding in another run: matched by its lines, else its memory, else its kind."""
    alike = [it for it in rows if it["kind"] == row["kind"]]
    for question in (lambda it: set(lines_of(it)), lambda it: it["tensor"], lambda it: True):
        if found := [it for it in alike if question(it) == question(row)]:
            return found[0]
    return None


def ends_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The accesses of a finding: file and line, and if known block and thread."""
    ends = []
    for (file, line), prefix in zip(lines_of(row), ("", "other_"), strict=False):
        end: dict[str, Any] = {"file": file, "line": line}
        thread = row[f"{prefix}thread"]
        if isinstance(row[f"{prefix}block"], tuple) and thread == thread:
            end |= {"block": row[f"{prefix}block"], "thread": int(thread)}
        ends.append(end)
    return ends


def nearest(ends: list[list[int]], opened: Sequence[int] = ()) -> list[int | None]:
    """The steps of a finding's accesses that belong together.

    They are the pair with the fewest barriers in between, and among those the nearest pair.

    ends: the steps of each access. opened: the steps in which the block passed a barrier, in order.
    """
    if len(ends) < 2 or not all(ends):
        return [min(steps, default=None) for steps in ends]
    ours, theirs = np.unique(ends[0]), np.unique(ends[1])
    behind = np.searchsorted(theirs, ours, "right")
    neighbours = {  # the last before each of ours, and the first behind it
        (int(a), int(theirs[j]))
        for a, i in zip(ours, behind, strict=True)
        for j in (i - 1, i)
        if 0 <= j < len(theirs)
    }
    passed = {step: int(np.searchsorted(opened, step)) for pair in neighbours for step in pair}
    pairs = [(abs(passed[a] - passed[b]), abs(a - b), a, b) for a, b in neighbours]
    return list(min(pairs)[2:])


def rounds_of(
    recorded: Recorded, report: Report, end: dict[str, Any], thread: int, address: float
) -> list[int]:
    """The steps of its block in which a thread accesses a finding's address, by its sightings; or,
    if it never does, runs the line."""
    seen = recorded.tables["sightings"]
    seen = seen[seen["thread"] == thread]
    names = [it for of in recorded.places for it in of.lines]
    here = [
        number
        for number in np.unique(seen["place"]).tolist()
        if is_at(report, *names[number][:2], end)
    ]
    seen = seen[np.isin(seen["place"], here)]
    hits = np.zeros(0)
    if address == 0:  # that of no memory: out of bounds
        hits = seen[seen["outside"] > 0]
    elif address == address:  # there is one
        hits = seen[(seen["address"] <= address) & (address < seen["address"] + seen["size"])]
    return (hits if len(hits) else seen[seen["size"] == 0])["round"].tolist()


def is_at(report: Report, file: str, line: int, end: dict[str, Any]) -> bool:
    """Whether a line is the one that a finding names for an access."""
    return (
        Path(file).name == Path(end["file"]).name
        and abs(line - end["line"]) < STATEMENT
        and report.told_line(file, line) == end["line"]
    )


def lines_to_watch(report: Report, ends: list[dict[str, Any]]) -> tuple[int, ...]:
    """The lines of the statements in which these accesses are."""
    return tuple(
        dict.fromkeys(
            line
            for end in ends
            for line in range(end["line"], end["line"] + STATEMENT)
            if report.told_line(end["file"], line) == end["line"]
        )
    )
