"""Reads a library's symbol table and line table through binutils: readelf and addr2line."""

import math
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple


class Variable(NamedTuple):
    """A variable: its offset in its library or, if thread-local, in its thread-local storage."""

    name: str
    offset: int
    bytes: int
    thread_local: bool


class Function(NamedTuple):
    """A function: its C++ name with template arguments, and its offset in its library."""

    name: str
    offset: int


class Array(NamedTuple):
    """An array's extents, and the type and size of its elements."""

    name: str
    type: str
    size: int
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return self.size * math.prod(self.shape)


class Frame(NamedTuple):
    """A source line, with the file's name as the compiler saw it."""

    file: str
    line: int


def variables(library: str) -> list[Variable]:
    """The variables that a library defines, with their names in C++."""
    found = {}
    for kind, name, at, size in _symbols(library):
        if kind in ("TLS", "OBJECT") and size:
            name = re.sub(r"\(.*\)|@.*", "", name).strip()
            found[at, kind] = Variable(name, at, size, kind == "TLS")
    return list(found.values())


def functions(library: str) -> list[Function]:
    """The functions that a library defines, without compiler-made clones."""
    return [
        Function(_without_parameters(name), at)
        for kind, name, at, size in _symbols(library)
        if kind == "FUNC" and size and not name.endswith("]")  # not k(int) [clone .constprop.0]
    ]


_CUDAS = {  # CUDA names of the simulator's types
    "simulator::Half<SimulatorBFloat16>": "__nv_bfloat16",
    "simulator::Half<SimulatorFloat16>": "__half",
}


def _without_parameters(name: str) -> str:
    """`k<float, 4>` of `void (anonymous namespace)::k<float, 4>(float*, int)`."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    for ours, cudas in _CUDAS.items():
        name = name.replace(ours, cudas)
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += (name[place] == ")") - (name[place] == "(")
        if depth == 0:
            return name[:place] if name[place] == "(" else name
    return name


@cache
def _symbols(library: str) -> list[tuple[str, str, int, int]]:
    """Kind, name, address and bytes of all that a library defines; a library file never changes."""
    row = re.compile(
        r"^\s*\d+:\s+(?P<at>[0-9a-f]+)\s+(?P<size>\w+)\s+(?P<kind>TLS|OBJECT|FUNC)"
        r"\s+\S+\s+\S+\s+\d+ (?P<name>.+)$",
        re.MULTILINE,
    )
    table = _run("readelf", "--symbols", "--wide", "--demangle", library)
    return [
        (match["kind"], match["name"], int(match["at"], 16), int(match["size"], 0))
        for match in row.finditer(table)
    ]


@cache
def arrays(library: str) -> list[Array]:
    """The arrays among a library's variables, from its debug information."""
    entries = _entries(_run("readelf", "--debug-dump=info", "--wide", library))
    found = set()
    for entry in entries.values():
        if entry.get("tag") != "variable" or "name" not in entry:
            continue
        array = _without_qualifiers(entry, entries)
        if array.get("tag") == "array_type" and all(n is not None for n in array["extents"]):
            of = _without_qualifiers(array, entries)
            if size := int(of.get("byte_size", "0")):
                extents = tuple(array["extents"])
                found.add(Array(entry["name"], of.get("name", "struct"), size, extents))
    return sorted(found)


def _entries(table: str) -> dict[str, dict[str, Any]]:
    """The variables and types of the debug information, by their offsets."""
    entries: dict[str, dict[str, Any]] = {}
    entry: dict[str, Any] = {}
    array: dict[str, Any] = {}
    head = re.compile(r"<[0-9a-f]+><([0-9a-f]+)>: .*\(DW_TAG_(\w+)\)")
    attribute = re.compile(  # newer binutils print a form in brackets before a value
        r"DW_AT_(name|type|byte_size|upper_bound)\s*:\s*(?:\([^)]*\):?\s*)*(?:<0x)?([^>\n]*)"
    )
    for line in table.splitlines():
        if match := head.search(line):
            entry = entries[match[1]] = {"tag": match[2]}
            if match[2] == "array_type":
                array = entry
                array["extents"] = []
            elif match[2] == "subrange_type" and array:
                array["extents"].append(None)  # unknown so far
        elif match := attribute.search(line):
            value = match[2].strip()
            if match[1] == "upper_bound" and array and value.isdigit():
                array["extents"][-1] = int(value) + 1
            entry[match[1]] = value
    return entries


def _without_qualifiers(entry: dict[str, Any], entries: dict[str, Any]) -> dict[str, Any]:
    """The type of an entry, without const, volatile and typedefs."""
    of = entries.get(entry.get("type", ""), {})
    while of.get("tag") in ("const_type", "volatile_type", "typedef"):
        of = entries.get(of.get("type", ""), {})
    return of


_frames: dict[str, dict[int, list[Frame]]] = {}  # by library; a library file never changes


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
