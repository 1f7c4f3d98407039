"""Functions as GPUs execute them: instructions, and the source lines of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolchain.resources import plain_names


class Place(NamedTuple):
    """A line of source, with the file's name as the compiler wrote it."""

    file: str
    line: int


@dataclass(frozen=True)
class Instruction:
    """One instruction, or a label if `is_label`.

    places: the line that it was made from, then the lines into which that was inlined.
    offset: bytes from the beginning of the function; None for PTX and for a label.
    """

    text: str
    places: tuple[Place, ...]
    offset: int | None = None
    is_label: bool = False

    def place(self, users_file: Callable[[str], str | None]) -> Place | None:
        """The innermost line in a .cu or .cpp file of the user; else in the user's header that has
        the kernel.

        users_file: returns the name of a user's file that the compiler names; None for others.
        """
        users = [Place(file, line) for name, line in self.places if (file := users_file(name))]
        own = [place for place in users if Path(place.file).suffix in (".cu", ".cpp")]
        own = own or [place for place in users if place.file == users[-1].file]
        return next(iter(own), None)


@dataclass(frozen=True)
class Function:
    """A kernel, or a device function that was not inlined.

    name: the C++ name, with template arguments.
    symbol: the mangled name.
    architecture: such as "sm_90"; for PTX, such as "compute_90".
    """

    name: str
    symbol: str
    architecture: str
    code: tuple[Instruction, ...]

    @property
    def instructions(self) -> list[Instruction]:
        """The instructions without labels."""
        return [it for it in self.code if not it.is_label]

    @property
    def title(self) -> str:
        count = len(self.instructions)
        plural = "s" if count != 1 else ""
        return f"{self.name}, {self.architecture}: {count:,} instruction{plural}"


def functions(by_symbol: dict[tuple[str, str], list[Instruction]]) -> list[Function]:
    """Functions of the code that was read by symbol and architecture, in the order of names."""
    names = plain_names(list(dict.fromkeys(symbol for symbol, _ in by_symbol))) if by_symbol else {}
    return sorted(
        (
            Function(names[symbol], symbol, architecture, tuple(code))
            for (symbol, architecture), code in by_symbol.items()
        ),
        key=lambda function: (function.name, function.architecture),
    )
