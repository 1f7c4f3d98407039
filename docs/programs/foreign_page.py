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


LISTED = 5  # a reason to stop is listed where it stops at least so many files
PAIRS = 8  # the commonest pairs of different verdicts are listed, the rest counted


def page(rows: list[Row], other: list[Row], own: dict[tuple[str, str], str]) -> str:
    """Totals, then what is not right, with the line that says why.

    own: files that fail by their own fault, and why: `foreign_rows.own_faults`.
    """
    modern = [row for row in rows if is_modern(row)]
    parts = [
        f"{time.strftime('%d %B %Y')}, target {default_target()}.",
        verdicts_table(rows, modern),
        "## Tensor cores, asynchronous copies, TMA, clusters",
        *faults(modern, own),
        joined(rows, other) if other else "",
        "## What stops them",
        f"What stops at least {LISTED} files. foreign.csv has the line for each of the others.",
        causes_table(rows),
    ]
    return "\n\n".join(filter(None, parts))


def verdicts_table(rows: list[Row], modern: list[Row]) -> str:
    """How many runs came to each verdict, in all and of those of modern features."""
    counts = [Counter(row.verdict for row in each) for each in (rows, modern)]
    lines = [
        [verdict, meaning, *(count[verdict] or "" for count in counts)]
        for verdict, meaning in VERDICTS.items()
    ]
    head = ["verdict", "the file", "runs", "with tensor cores, async copies, TMA or clusters"]
    return table(head, [*lines, ["all", "", len(rows), len(modern)]], "llr")


def causes_table(rows: list[Row]) -> str:
    lines = [
        [f"`{cause}`".replace("``", "`"), count, f"{found[0].source}/{found[0].file}"]
        for cause, count, found in causes(rows)
        if count >= LISTED
    ]
    return table(["the line", "files", "as in"], lines, "lrl")


def built(rows: list[Row], source: str) -> tuple[int, int]:
    """How many files a source has, and how many of them build."""
    own = [row for row in rows if row.source == source and row.verdict != "left out"]
    return len(set(map(file_of, own))), len({file_of(row) for row in own if builds(row)})


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
        f"Of {len(rows)} runs {len(theirs)} fail by the file's own fault, or are for another GPU:"
        f" nvcc says so, or what the file does is not defined (foreign_own.csv). {slow} of the"
        f" other {rest} did not end in time. Of the {ended} that did, {percent:.0f}% are right, run"
        f" or load. {right} are right by a check. For {called} of these the check is made from"
        " Python: their functions are called with small inputs, and compared with PyTorch"
        f" (docs/programs/foreign_calls.py). {smaller} programs got a smaller number than their"
        " author's, whose size would take hours (docs/programs/foreign_sizes.py)."
    )
    if not ours:
        return [said]
    cells = [[f"{r.source}/{r.file}", r.verdict, _quoted(r.why)] for r in ours]
    return [
        said,
        "Not right, by no fault of the file that is known:",
        table(["file", "verdict", "why"], cells, "l"),
    ]


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
    differ = Counter((row.verdict, there.verdict) for row, there in pairs)
    same = sum(count for (here, there), count in differ.items() if here == there)
    unlike = [[*both, n] for both, n in differ.most_common() if both[0] != both[1]]
    lines = unlike[:PAIRS]
    if rest := sum(count for *_, count in unlike[PAIRS:]):
        lines.append(["other pairs", "", rest])
    said = (
        f"{same} of {len(pairs)} runs have the same verdict on a GPU (foreign_gpu.csv)."
        f" The other {len(pairs) - same}:"
    )
    shown = table(["on the simulator", "on a GPU", "runs"], lines, "llr")
    return "\n\n".join(["## On a GPU", said, shown])


def _quoted(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`" if text else ""
