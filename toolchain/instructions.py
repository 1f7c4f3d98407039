"""A function as a GPU executes it, instruction by instruction, and the source lines of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolchain.resources import plain_names


class Place(NamedTuple):
    """A line of source, as the compiler named the file."""

    file: str
    line: int


@dataclass(frozen=True)
class Instruction:
    """One instruction, or a label where `is_label`.

    places: the line that it was made from, and after it the lines into which that was inlined.
    offset: bytes from the beginning of the function; None for PTX and for a label.
    """

    text: str
    places: tuple[Place, ...]
    offset: int | None = None
    is_label: bool = False

    def place(self, users_file: Callable[[str], str | None]) -> Place | None:
        """The innermost line in a .cu or .cpp file of the user's; else in their header that has
        the kernel.

        users_file: what a file that the compiler names is called there; None if it is not one.
        """
        users = [Place(file, line) for name, line in self.places if (file := users_file(name))]
        own = [place for place in users if Path(place.file).suffix in (".cu", ".cpp")]
        own = own or [place for place in users if place.file == users[-1].file]
        return next(iter(own), None)


@dataclass(frozen=True)
class Function:
    """A kernel, or a device function that was not inlined.

    name: as C++ has it, with template arguments.
    symbol: the mangled name.
    architecture: as in "sm_90"; of PTX as in "compute_90".
    """

    name: str
    symbol: str
    architecture: str
    code: tuple[Instruction, ...]

    @property
    def instructions(self) -> list[Instruction]:
        """Without the labels."""
        return [it for it in self.code if not it.is_label]

    @property
    def title(self) -> str:
        count = len(self.instructions)
        plural = "s" if count != 1 else ""
        return f"{self.name}, {self.architecture}: {count:,} instruction{plural}"


def functions(by_symbol: dict[tuple[str, str], list[Instruction]]) -> list[Function]:
    """What was read, by symbol and architecture, in the order of the names."""
    names = plain_names(list(dict.fromkeys(symbol for symbol, _ in by_symbol))) if by_symbol else {}
    return sorted(
        (
            Function(names[symbol], symbol, architecture, tuple(code))
            for (symbol, architecture), code in by_symbol.items()
        ),
        key=lambda function: (function.name, function.architecture),
    )
