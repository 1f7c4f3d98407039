"""What a library's symbol table and line table say, through binutils: readelf and addr2line."""

import re
import subprocess
from collections.abc import Iterable
from typing import NamedTuple


class Variable(NamedTuple):
    """A variable: where it lies in its library or, thread-local, in the library's of a thread."""

    name: str
    offset: int
    bytes: int
    thread_local: bool


class Frame(NamedTuple):
    """A line of source, as the compiler named the file."""

    file: str
    line: int


def variables(library: str) -> list[Variable]:
    """The variables that a library defines, with their names in C++."""
    table = _run("readelf", "--symbols", "--wide", "--demangle", library)
    row = re.compile(
        r"^\s*\d+:\s+(?P<at>[0-9a-f]+)\s+(?P<size>\w+)\s+(?P<type>TLS|OBJECT)\s+\S+\s+\S+\s+\d+"
        r" (?P<name>.+)$",
        re.MULTILINE,
    )
    found = {}
    for match in row.finditer(table):
        name = re.sub(r"\(.*\)|@.*", "", match["name"]).strip()
        at, size, local = int(match["at"], 16), int(match["size"], 0), match["type"] == "TLS"
        if size:
            found[at, local] = Variable(name, at, size, local)
    return list(found.values())


_frames: dict[str, dict[int, list[Frame]]] = {}  # by library: one of a name never changes


def frames(library: str, offsets: Iterable[int]) -> dict[int, list[Frame]]:
    """The line of each address in a library, and the lines it was inlined into, innermost first."""
    known = _frames.setdefault(library, {})
    if new := [offset for offset in offsets if offset not in known]:
        known |= {offset: [] for offset in new}
        said, at = _run("addr2line", "-a", "-i", "-e", library, *map(hex, new)), 0
        for line in said.splitlines():
            if re.fullmatch(r"0x[0-9a-f]+", line):
                known[at := int(line, 16)] = []
            elif match := re.match(r"(?P<file>.+):(?P<line>\d+)", line):
                known[at].append(Frame(match["file"], int(match["line"])))
    return known


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise RuntimeError(
            f"lab.check needs {command[0]} on PATH: on Linux it comes with the compiler, in the"
            " package binutils; elsewhere there is no checker yet"
        ) from None
