"""Machine code or PTX beside the source lines that made it, as text and as HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from toolchain import opcodes
from toolchain.instructions import Function, Instruction, Place
from toolchain.tables import text_table

MOST = 4000  # instructions that are shown; with more, a table of the functions
WIDTH = 56  # characters of a source line beside its instructions, in text


@dataclass(frozen=True)
class ListingSource:
    """What a listing shows.

    language: "SASS" or "PTX".
    of: the build's name.
    sources: the lines of the files that made it, by name.
    users_file: returns the name in `sources` of a file that the compiler names; None for others.
    """

    language: str
    of: str
    sources: Mapping[str, list[str]]
    users_file: Callable[[str], str | None]

    def place(self, instruction: Instruction) -> Place | None:
        return instruction.place(self.users_file)

    def text(self, place: Place) -> str:
        lines = self.sources.get(place.file, [])
        return lines[place.line - 1] if 0 < place.line <= len(lines) else ""


class Listing(list[Function]):
    """Functions, shown as runs of instructions, each run beside its line of source.

    With more than MOST instructions a table of the functions is shown. `note` says why it is empty.
    """

    def __init__(self, functions: list[Function], code: ListingSource, note: str = ""):
        super().__init__(functions)
        self.code, self.note = code, note

    def only(
        self, name: str = "", line: int | str | None = None, architecture: str | None = None
    ) -> Listing:
        """The functions whose name contains this, and of these only the instructions of one line.

        line: a line number in the kernel's file; or "vec.cuh:45" for any file.

        Raises ValueError, which lists what there is, if nothing is left.
        """
        if self.note:
            return self
        functions = [it for it in self if name in it.name or name == it.symbol]
        if not functions:
            known = ", ".join(sorted({it.name.partition("<")[0] for it in self})) or "none"
            raise ValueError(f"{self.code.of} has no function {name!r} on a GPU; it has: {known}")
        if architecture is not None:
            archs = sorted({it.architecture for it in functions})
            number = architecture.partition("_")[2] or architecture.replace(".", "")
            functions = [it for it in functions if it.architecture.partition("_")[2] == number]
            if not functions:
                raise ValueError(
                    f"{self.code.of} is not built for {architecture}, but for {', '.join(archs)}"
                )
        if line is not None:
            functions = self._of_line(functions, line)
        return Listing(functions, self.code)

    def _of_line(self, functions: list[Function], line: int | str) -> list[Function]:
        def is_there(it: Instruction) -> bool:
            if isinstance(line, int):
                place = self.code.place(it)
                return place is not None and place.line == line
            file, _, number = str(line).rpartition(":")
            return any(
                str(place.line) == number and f"/{place.file}".endswith(f"/{file}")
                for place in it.places
            )

        parts = [
            replace(function, code=tuple(filter(is_there, function.code))) for function in functions
        ]
        parts = [function for function in parts if function.code]
        if not parts:
            places = {self.code.place(it) for function in functions for it in function.code}
            known = sorted(place.line for place in places if place)
            raise ValueError(
                f"line: no instruction is of line {line}; there are of"
                f" {', '.join(map(str, dict.fromkeys(known))) or 'none'}"
            )
        return parts

    @property
    def is_long(self) -> bool:
        return sum(len(function.code) for function in self) > MOST

    # ---- what is shown

    def summary(self) -> list[tuple[str, ...]]:
        """A row for each function: the numbers of its instructions of each kind."""
        head = ("function", "for", "instructions", *opcodes.KINDS)
        rows = [head]
        for function in self:
            kinds = Counter(opcodes.kind(it.text) for it in function.instructions)
            counts = (str(kinds[kind] or "") for kind in opcodes.KINDS)
            count = len(function.instructions)
            rows.append((function.name, function.architecture, f"{count:,}", *counts))
        return rows

    @property
    def hint(self) -> str:
        """The line below a table that says how to see more."""
        method = self.code.language.lower()
        return f"{method}(name) shows the instructions of those with this in their name."

    def runs(self, function: Function) -> Iterator[tuple[Place | None, list[Instruction]]]:
        """Runs of consecutive instructions of the same line of source."""
        place, run = None, []
        for it in function.code:
            there = place if it.is_label and run else self.code.place(it)
            if run and there != place:
                yield place, run
                run = []
            place = there
            run.append(it)
        if run:
            yield place, run

    def __str__(self) -> str:
        if self.note:
            return self.note
        if self.is_long:
            return self.overview()
        return "\n\n".join("\n".join(self._lines(function)) for function in self)

    __repr__ = __str__

    def overview(self) -> str:
        """The table of the functions, as text."""
        return f"{text_table(self.summary())}\n{self.hint}"

    def _lines(self, function: Function) -> Iterator[str]:
        yield function.title
        for place, run in self.runs(function):
            at = f"{Path(place.file).name}:{place.line}" if place else ""
            source = self.code.text(place).strip() if place else ""
            left = f"{at:<18} {source}"[: WIDTH + 18]
            for it in run:
                yield f"{left:<{WIDTH + 18}} | {shown(it)}".rstrip()
                left = ""

    def _repr_html_(self) -> str:
        from toolchain import listing_html

        return listing_html.page(self)


def shown(it: Instruction) -> str:
    """An instruction with its offset, or a label."""
    if it.is_label:
        return it.text if " " in it.text else f"{it.text}:"  # a PTX declaration, or a label
    offset = f"{it.offset:04x}  " if it.offset is not None else ""
    return f"  {offset}{it.text}"
