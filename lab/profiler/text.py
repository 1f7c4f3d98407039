"""A report of `lab.profile` as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pandas import isna

if TYPE_CHECKING:
    from lab.profiler.report import Profile

WIDTH = 100  # characters of a line of source that are shown
LEAST = 0.005  # share of samples: a line with less and no memory traffic is left out


def report(profile: Profile) -> str:
    """Launches, then lines with the heat in figures, then the counts beside the checker's."""
    parts = [profile.headline]
    parts += ["\n".join(launch(row)) for row in profile.kernels.to_dict("records")]
    if table := _lines(profile):
        parts.append(table)
    if table := _counts(profile):
        parts.append(table)
    if profile.note:
        parts.append(profile.note)
    return "\n\n".join(parts)


def launch(row: dict[str, Any]) -> list[str]:
    """A launch's time and use of the GPU, in four lines."""
    return [
        f"{row['kernel']}: {time(row)}, {shape(row)}",
        f"  memory {percent(row['memory'])} of its peak (DRAM {percent(row['dram'])}),"
        f" arithmetic {percent(row['compute'])}, tensor cores {percent(row['tensor'])}",
        f"  {occupancy(row)}",
    ]


def time(row: dict[str, Any]) -> str:
    return "no time" if isna(row["microseconds"]) else f"{row['microseconds']:.2f} µs"


def shape(row: dict[str, Any]) -> str:
    """Grid and block, in the syntax of a launch."""
    grid, block = (" x ".join(map(str, row[name])) or "?" for name in ("grid", "block"))
    return f"{grid} block{'' if grid == '1' else 's'} of {block} threads"


def percent(value: float | None) -> str:
    return "?" if value is None or isna(value) else f"{value:.0f}%"


def occupancy(row: dict[str, Any]) -> str:
    """The possible and the achieved warps, and what limits them."""
    said = f"occupancy {percent(row['occupancy'])} possible, {percent(row['achieved'])} achieved"
    return "; ".join([said, *limits(row)])


def limits(row: dict[str, Any]) -> list[str]:
    """What limits the warps: a block's resources, or a grid that does not fill the GPU."""
    found = []
    if row["limited_by"]:
        taken = [f"{row['blocks']} block{'s fit' if row['blocks'] != 1 else ' fits'}"]
        if "registers" in row["limited_by"]:
            taken.insert(0, f"{row['registers']:.0f} registers a thread")
        if "shared memory" in row["limited_by"]:
            taken.insert(0, f"{row['shared'] / 1024:.1f} KiB a block")
        if "block size" in row["limited_by"]:
            taken.insert(0, f"{' x '.join(map(str, row['block']))} threads a block")
        found.append(f"limited by {row['limited_by']}: {', '.join(taken)} a multiprocessor")
    if row["waves"] is not None and row["waves"] < 1:
        part = f"{row['waves']:.0%}" if row["waves"] >= 0.01 else "less than 1%"
        found.append(f"the grid has {part} of the blocks that fit the GPU at once")
    return found


def shown_lines(profile: Profile) -> list[dict[str, Any]]:
    """The lines that matter, by file and number."""
    return [
        row
        for row in profile.lines.to_dict("records")
        if row["share"] >= LEAST or row["requests"] or row["shared_requests"]
    ]


def ratio(taken: int, ideal: int, requests: int) -> str:
    """The average sectors or passes per request, and the fewest that would suffice."""
    return f"{taken / requests:.1f} ({ideal / requests:.1f})" if requests else ""


def _lines(profile: Profile) -> str:
    rows = [("line", "samples", "most of them wait for", "sectors (ideal)", "passes (ideal)", "")]
    for it in shown_lines(profile):
        source = profile.source(it["file"])
        code = source[it["line"] - 1].strip() if it["line"] <= len(source) else ""
        waits = f"{it['reason']} {it['reason_share']:.0%}" if it["reason"] else ""
        rows.append(
            (
                f"{Path(it['file']).name}:{it['line']}",
                f"{it['share']:.1%}",
                waits,
                ratio(it["sectors"], it["ideal_sectors"], it["requests"]),
                ratio(it["passes"], it["ideal_passes"], it["shared_requests"]),
                code[:WIDTH],
            )
        )
    return columns(rows) if len(rows) > 1 else ""


COUNTS = ("requests", "sectors", "passes", "bank_conflicts")


def counts_headline(profile: Profile) -> str:
    """How many of the counts agree; empty if lab.check did not count."""
    table = profile.counts
    if table.empty:
        return ""
    same = int((table["gpu"] == table["checker"]).sum())
    return f"The GPU's counts; lab.check has the same in {same} of {len(table)}."


def counts(profile: Profile) -> list[tuple[str, str, list[tuple[str, bool]]]]:
    """For each line and memory the GPU's counts, and those of lab.check if they differ: the place,
    the memory, and for each of COUNTS the text and whether they agree."""
    rows = []
    for (file, line, memory), group in profile.counts.groupby(["file", "line", "memory"]):
        both = {it["count"]: (it["gpu"], it["checker"]) for it in group.to_dict("records")}
        cells = [_both(*both[name]) if name in both else ("", True) for name in COUNTS]
        rows.append((f"{Path(file).name}:{line}", memory, cells))
    return rows


def _both(gpu: int, checker: int) -> tuple[str, bool]:
    same = gpu == checker
    return (f"{gpu:,}" if same else f"{gpu:,} (lab.check {checker:,})"), same


def _counts(profile: Profile) -> str:
    if not (said := counts_headline(profile)):
        return ""
    rows = [("line", "memory", *(name.replace("_", " ") for name in COUNTS), "")]
    rows += [
        (where, memory, *(cell for cell, _ in cells), "")
        for where, memory, cells in counts(profile)
    ]
    return f"{said}\n{columns(rows)}"


def columns(rows: list[tuple[str, ...]]) -> str:
    """A table: the first and last columns left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *middle, last = (
            cell.ljust(width) if at in (0, len(row) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *middle, last]).rstrip())
    return "\n".join(lines)
