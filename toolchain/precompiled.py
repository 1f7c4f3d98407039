"""The simulator's headers, parsed once: what g++ reads in their place before a kernel.

They and the standard headers that they include are 25,000 lines, which take longer to parse than a
small kernel to compile. g++ writes what it knows after a header to a file of 22 MB, and a later run
with the same flags begins with that. It is made once for each compiler and set of flags, and lies
in a folder that is looked into before those with headers; where it does not fit, g++ goes on to
the header itself.

It is for what is compiled again and again: parts of a kernel, and kernels without a binding.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import simulator
from toolchain import machine, sources
from toolchain.code import SIMULATOR, Code
from toolchain.command_line import for_ninja
from toolchain.notes import close_to_others, digest_of, discard, made, read_note, write_note

HEADER = "simulator/nvcc.h"  # the first that a .cu includes

_NOTE = "made.json"
# What may put something else before the header, or in the place of those that it includes.
_OTHERWISE = re.compile(r"-(include|imacros|iquote|idirafter|nostdinc|-?sysroot|specs|[IDU]$)")
_PATHS = ("CPATH", "CPLUS_INCLUDE_PATH")
# What differs between builds: their names, where their headers lie, and the user's macros. Whether
# one of those means anything to the header, g++ looks itself.
_OF_ONE_BUILD = re.compile(r"-I|-D(?!SIMULATOR_|PLAYGROUND_|THRUST_|CCCL_)|-U")
_BLAMED = re.compile(r"\bPCH\b|precompiled header|internal compiler error")
_FLAGS = re.compile(r"-I(\S+) -fpch-deps ")


def added_to(text: str, code: Code, folders: Sequence[Path], work: Path) -> str:
    """A file for ninja whose C++ compiler finds the headers parsed, where that can be.

    Args:
        folders: where they may be kept; what is made is kept in the first.
        work: where they are made before they appear there.
    """
    recipe = code.recipe
    wanted = recipe.target == "cpu" and code.binding in ("c", "part")
    wanted = wanted and not sources.folders_in(recipe.flags, "-isystem")
    wanted = wanted and not recipe.sources[0].is_relative_to(SIMULATOR)  # these are compiled once
    if not wanted or sys.platform != "linux" or machine.is_clang(code.compilers):
        return text
    cxx, flags = (_words(re.search(rf"(?m)^{name} = (.*)$", text)[1]) for name in ("cxx", "cflags"))
    if any(map(_OTHERWISE.match, flags)) or not os.environ.keys().isdisjoint(_PATHS):
        return text
    flags = [flag for flag in flags if not _OF_ONE_BUILD.match(flag)]
    flags[flags.index("-x") + 1] = "c++-header"
    command = [*cxx, *flags, f"-I{simulator.INCLUDE}"]
    key = digest_of(code.compilers, machine.cpu(), *command)[:16]
    places = [folder / key for folder in folders]
    place = next(filter(_is_whole, places), None)
    if place is None:
        place = places[0]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _make(place, work / "precompiled", command)
    note = read_note(place / _NOTE)
    if not note or not note["sha256_of_file"] or any(_is_before(note, f) for f in recipe.include):
        return text
    return text.replace("\ncflags = ", f"\ncflags = -I{for_ninja(str(place))} -fpch-deps ", 1)


def without(text: str, said: str) -> tuple[str, Path] | None:
    """The file for ninja without the parsed headers, and where they are, if they may be at fault.

    said: the compiler's output.
    """
    found = _FLAGS.search(text)
    if found is None or not _BLAMED.search(said):
        return None
    return text.replace(found[0], ""), Path(*_words(found[1]))


def refuse(place: Path) -> None:
    """Never use those again that are there."""
    discard(place / f"{HEADER}.gch")
    with contextlib.suppress(OSError):
        write_note(place / _NOTE, {"read": [], "names": [], "sha256_of_file": ""})


def _words(text: str) -> list[str]:
    """Those of a command in a file for ninja."""
    return shlex.split(re.sub(r"\$(.)", r"\1", text))


def _make(place: Path, work: Path, command: list[str]) -> None:
    """Let the folder `place` appear with the parsed headers, at once."""
    parsed = work / f"{HEADER}.gch"
    parsed.parent.mkdir(parents=True)
    source = simulator.INCLUDE / HEADER
    # -MMD has it remember what it has read for the depfiles to come, -H has it say all of that.
    more = ["-MMD", "-MF", os.devnull, "-H", str(source), "-o", str(parsed)]
    run = subprocess.run(
        [*command, *more],
        capture_output=True,
        text=True,
        check=True,
        timeout=machine.PATIENCE,
        env={**os.environ, "LC_ALL": "C"},
    )
    read = [str(source), *re.findall(r"^\.+ (.+)$", run.stderr, re.MULTILINE)]
    note = {
        "read": [[path, *_state(path)] for path in dict.fromkeys(read)],
        "names": sorted(_names(read, command)),
        "sha256_of_file": digest_of(parsed.read_bytes()),
    }
    write_note(work / _NOTE, note)
    for path in (work, parsed.parent, parsed):
        close_to_others(path)
    made(place.parent)
    discard(place)
    work.rename(place)  # fails where another process was faster


def _names(read: Iterable[str], command: list[str]) -> set[str]:
    """How the names begin by which the headers may be included."""
    folders = [str(simulator.INCLUDE), *map(str, machine.compilers_headers(*command))]
    return {
        os.path.relpath(path, folder).partition(os.sep)[0]
        for path in map(os.path.normpath, read)
        for folder in folders
        if path.startswith(f"{folder}{os.sep}")
    }


def _state(path: str) -> list[int]:
    """What tells that a file is still the same one."""
    found = os.stat(path)  # noqa: PTH116 - of some hundreds, for each build
    return [found.st_size, found.st_mtime_ns]


def _is_whole(place: Path) -> bool:
    """Whether the parsed headers are there, and are those of today; or whether they are refused."""
    note = read_note(place / _NOTE)
    with contextlib.suppress(OSError):
        if note and all(_state(path) == was for path, *was in note["read"]):
            said = note["sha256_of_file"]
            return not said or said == _digest(place, _state(f"{place}/{HEADER}.gch")[1])
    return False


def _is_before(note: dict[str, Any], folder: Path) -> bool:
    """Whether a folder of the user's has something under a name that the headers include."""
    return any(os.path.lexists(f"{folder}{os.sep}{name}") for name in note["names"])


@cache
def _digest(place: Path, changed: int) -> str:
    """Of the file in a place; once in a process, as long as it stays."""
    return digest_of((place / f"{HEADER}.gch").read_bytes())
