"""The tables of docs/foreign.md."""

from __future__ import annotations

import re
import time
from collections import Counter

from docs.programs.foreign_rows import GOOD, VERDICTS, Row, builds, file_of, is_modern
from docs.programs.page import table
from jitload import default_target

SHOWN = ("right", "runs", "loads", "slow", "refused", "no build", "wrong", "crashed", "hung")


def totals_table(rows: list[Row], before: list[Row]) -> str:
    """A line for each source, and one for all."""
    sources = list(dict.fromkeys(row.source for row in rows))
    head = ["source", "files", *SHOWN, "other", "builds", *(["built before"] if before else [])]
    lines = [_totals(source, rows, before) for source in sources]
    return table(head, [*lines, _totals(None, rows, before)], "lr")


def _totals(source: str | None, rows: list[Row], before: list[Row]) -> list[object]:
    own = [row for row in rows if source in (row.source, None)]
    tried = {row.digest + row.file: row for row in own if row.verdict != "left out"}
    counts = Counter(row.verdict for row in own)
    others = sum(count for verdict, count in counts.items() if verdict not in SHOWN)
    earlier = [row for row in before if source in (row.source, None)]
    files = {file_of(row) for row in tried.values()}
    built = {file_of(row) for row in tried.values() if builds(row)}
    known = {file_of(row) for row in earlier if builds(row)} & files
    return [
        source or "all",
        len(files),
        *(counts[verdict] or "" for verdict in SHOWN),
        others or "",
        len(built),
        *([len(known)] if before else []),
    ]


def page(
    rows: list[Row],
    sources: dict[str, str],
    before: list[Row],
    other: list[Row],
    own: dict[tuple[str, str], str],
) -> str:
    """Totals, then what is not right, with the line that says why.

    sources: the repository and commit of each.
    own: what is not ours to mend, and why: `foreign_rows.own_faults`.
    """
    meanings = [f"- **{verdict}**: {meaning}." for verdict, meaning in VERDICTS.items()]
    modern = [row for row in rows if is_modern(row)]
    stopped = [
        [cause, count, ", ".join(f"{row.source}/{row.file}" for row in found[:4])]
        for cause, count, found in causes(rows)
    ]
    parts = [
        f"{time.strftime('%d %B %Y')}, target {default_target()}.",
        totals_table(rows, before),
        "\n".join(meanings),
        "## Tensor cores, asynchronous copies, TMA, clusters",
        "Those of the files above that use one of these:",
        totals_table(modern, []),
        *faults(modern, own),
        joined(rows, other) if other else "",
        "## What stops them",
        "docs/foreign.csv has each file, and the line that says why.",
        table(["the line", "files", "as in"], stopped, "lrl"),
        "## The sources",
        "\n".join(f"- {name}: {place}" for name, place in sources.items()),
    ]
    return "\n\n".join(filter(None, parts))


def faults(rows: list[Row], own: dict[tuple[str, str], str]) -> list[str]:
    """How many are right of those that can be, and whose fault each of the others is."""

    def reason(row: Row) -> str | None:
        return own.get((row.source, row.file)) or own.get(file_of(row))

    failing = [row for row in rows if row.verdict not in GOOD]
    theirs = [row for row in failing if reason(row)]
    ours = [row for row in failing if not reason(row)]
    slow = sum(row.verdict == "slow" for row in ours)
    rest = len(rows) - len(theirs)
    ended = rest - slow
    good = ended - (len(ours) - slow)
    right = sum(row.verdict == "right" for row in rows)
    called = sum(row.why.startswith("called from Python") for row in rows)
    smaller = sum(row.why.startswith("smaller, ") for row in rows)
    percent = 100 * good / (ended or 1)
    said = (
        f"Of these {len(rows)} runs {len(theirs)} fail by the file's own fault, or are for another"
        f" GPU; nvcc says so, or what the file does is not defined. {slow} of the other {rest} did"
        f" not end in time. Of the {ended} that did, {percent:.0f}% are right, run or load."
        f" {right} are right by a check, {called} of which are made from Python: their functions"
        " are called with small inputs, and compared with PyTorch"
        f" (docs/programs/foreign_calls.py). In {smaller} runs a number of the program is smaller"
        " than its author's (docs/programs/foreign_sizes.py), for its own size would take hours."
    )
    parts = [said]
    if ours:
        cells = [[f"{r.source}/{r.file}", r.verdict, _quoted(r.why)] for r in ours]
        parts += ["### Not right", table(["file", "verdict", "why"], cells, "l")]
    if theirs:
        cells = [[f"{r.source}/{r.file}", r.verdict, reason(r)] for r in theirs]
        parts += ["### Not ours to mend", table(["file", "here", "why"], cells, "l")]
    return parts


# What one file's message has before that of all.
_PLACE = r"^.*?\berror: (\S+\.so: )?|^\S+:\d+(:\d+)?: |^the program cannot be started: \S+: "


def causes(rows: list[Row]) -> list[tuple[str, int, list[Row]]]:
    """What files fail of, the commonest first: the line that says so, how many, and which."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.verdict in GOOD or row.verdict == "left out":
            continue
        message = re.sub(_PLACE, "", row.why)
        message = re.sub(r"; did you mean .*|\d+\.\d+ s|0x[0-9a-f]+|\(aka .*?\)", "", message)
        if row.verdict not in ("no build", "refused"):
            told = row.verdict not in ("slow", "hung") and message.strip()
            message = f"{row.verdict}: {message}" if told else row.verdict
        found.setdefault(message.strip(), []).append(row)
    counts = [(what, len({file_of(row) for row in each}), each) for what, each in found.items()]
    return sorted(counts, key=lambda cause: -cause[1])


def joined(rows: list[Row], other: list[Row]) -> str:
    """Where another target came to another verdict."""
    known = {(row.source, row.file, row.digest): row for row in other}
    pairs = [(row, known.get((row.source, row.file, row.digest))) for row in rows]
    pairs = [(row, there) for row, there in pairs if there]
    differ = [(row, there) for row, there in pairs if row.verdict != there.verdict]
    lines = [
        [f"{row.source}/{row.file}", row.verdict, there.verdict, _quoted(there.why)]
        for row, there in differ
    ]
    said = f"{len(pairs) - len(differ)} of {len(pairs)} have the same verdict on a GPU."
    return "\n\n".join(
        filter(
            None, ["## On a GPU", said, lines and table(["file", "here", "GPU", "why"], lines, "l")]
        )
    )


def _quoted(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`" if text else ""
