"""What came of somebody's file: a row of docs/foreign.csv."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from docs.programs.foreign_cases import MODERN

VERDICTS = {
    "right": "ran, and is right by its own check, or says nothing wrong and checks nothing else",
    "runs": "ran to its end with exit status 0, and says nothing of being right",
    "loads": "has no main(): its functions and kernels can be called from Python",
    "waived": "says itself that this device does not suit it",
    "arguments": "wants arguments that nobody has given it",
    "slow": "did not end in time, and was computing",
    "refused": "is refused in one line that says what is not supported",
    "no build": "does not compile, or lacks a library",
    "wrong": "says itself that it is wrong, or reports an error",
    "crashed": "was ended by a signal",
    "hung": "did not end in time, and did nothing",
    "left out": "needs a library of graphics or the like",
}
GOOD = ("right", "runs", "loads", "waived", "arguments")


@dataclass(frozen=True)
class Row:
    """What came of one file, with one list of arguments.

    Attributes:
        digest: of the file and its own headers.
        needs: what it needs besides CUDA C++ and its runtime.
        build, seconds: how long its build took, and its run.
        why: the line that says so.
    """

    source: str
    file: str
    digest: str
    kind: str
    needs: str
    verdict: str
    build: str
    seconds: str
    why: str


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows(asdict(row).values() for row in rows)


def read(path: Path | None) -> list[Row]:
    if path is None:
        return []
    with path.open(newline="") as file:
        return [Row(**row) for row in csv.DictReader(file)]


def is_modern(row: Row) -> bool:
    return is_of_modern(row.needs.split(", "))


def is_of_modern(needs: Iterable[str]) -> bool:
    return not set(MODERN).isdisjoint(needs)


def file_of(row: Row) -> tuple[str, str]:
    """Without its arguments."""
    return row.source, re.sub(r" \[.*\]$", "", row.file)


def builds(row: Row) -> bool:
    return row.verdict not in ("no build", "refused", "left out") and bool(row.build)


def own_faults(path: Path) -> dict[tuple[str, str], str]:
    """Files that cannot be right here, and why: docs/foreign_own.csv.

    nvcc does not compile them for an H200, or they do what CUDA leaves undefined.
    """
    with path.open(newline="") as file:
        return {(row["source"], row["file"]): row["why"] for row in csv.DictReader(file)}


def sources(path: Path) -> dict[str, str]:
    """The repository and commit of each source."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        return {row["source"]: f"{row['repository']} at {row['commit']}" for row in rows}


def write_sources(path: Path, sources: dict[str, str], counts: dict[str, tuple[int, int]]) -> None:
    """counts: how many files each source has, and how many of them build."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["source", "repository", "commit", "files", "built"])
        writer.writerows(
            [name, *place.split(" at ", 1), *counts[name]] for name, place in sources.items()
        )
