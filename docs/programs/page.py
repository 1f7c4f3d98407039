"""What the programs of this folder share: their part of a page, tables, times, the machine."""

from __future__ import annotations

import csv
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolchain import machine

ROOT = Path(__file__).resolve().parents[2]
END = "<!-- to here -->"


@dataclass(frozen=True)
class Part:
    """What a program writes of a page: all between two comments, of which the first names it.

    Attributes:
        page: a file of docs/, as in "loop.md".
        program: the module, as in "docs.programs.loop".
    """

    page: str
    program: str

    @property
    def begin(self) -> str:
        return f"<!-- python -m {self.program} writes from here -->"

    def read(self) -> str:
        return self._pieces()[1].strip()

    def write(self, text: str) -> None:
        """Put `text` in the place of what is there; the rest of the page stays.

        Raises:
            ValueError: the page does not have each of the two comments, in their order.
        """
        before, _, after = self._pieces()
        self._path.write_text(f"{before}{self.begin}\n\n{text}\n\n{END}{after}")

    @property
    def _path(self) -> Path:
        return ROOT / "docs" / self.page

    def _pieces(self) -> tuple[str, str, str]:
        """What stands before the first comment, between the two, and after the second."""
        text = self._path.read_text()
        before, begin, rest = text.partition(self.begin)
        written, end, after = rest.partition(END)
        if not (begin and end):
            raise ValueError(f"{self._path}: wanted are the lines {self.begin} and {END}")
        return before, written, after


def table(head: Sequence[str], rows: Iterable[Sequence[object]], alignment: str) -> str:
    """A table in Markdown.

    alignment: a letter for each column, l or r; the last one is for all that follow, too.
    """
    sides = alignment.ljust(len(head), alignment[-1])
    rule = ["---:" if side == "r" else "---" for side in sides]
    return "\n".join(_line(map(str, cells)) for cells in (head, rule, *rows))


def write_csv(name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table that is too long for a page to a file of docs/, as in "checker_ncu.csv"."""
    with (ROOT / "docs" / name).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def _line(cells: Iterable[str]) -> str:
    return " ".join(["|", *(f"{cell.replace('|', '/')} |".lstrip() for cell in cells)])


def rows_of(text: str) -> list[list[str]]:
    """The cells of all lines of tables in Markdown, heads among them."""
    lines = [line for line in text.splitlines() if re.match(r"\|(?! ---)", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


def cores() -> str:
    """As in "2 CPU cores (AMD EPYC)"."""
    found = re.search(r"^model name\s*: (.+)$", machine.cpu(), re.MULTILINE)
    return f"{os.cpu_count()} CPU cores ({found[1] if found else platform.machine()})"
