"""Precompiled headers of the simulator and of PyTorch, which g++ reads in place of the headers.

The simulator's headers and the standard headers that they include have 25,000 lines, which take
longer to parse than a small kernel to compile. g++ writes its state after a header to a file of
22 MB, and a later run with the same flags starts from that. The file is made once for each compiler
and set of flags. Its folder is searched before those with headers; if the file does not fit, g++
reads the header itself.

It is used for what is compiled often: parts of a kernel, and kernels without a binding. It is also
used for a .cu or .cpp that begins with PyTorch's headers. That file takes up to 600 MB and half a
minute, so it is made in the background, after the first build that reads the headers.

For a GPU it has the headers of PyTorch's stable ABI, half of a binding's compile time: 70 MB, made
in two seconds by set-up, or in the background after the first binding.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import simulator
from simulator.scan import without_comments
from toolchain import idle, machine, sources, torch_headers
from toolchain.code import SIMULATOR, Code
from toolchain.command_line import for_ninja
from toolchain.notes import digest_of, discard, publish_folder, read_note, write_note

HEADER = "simulator/nvcc.h"  # the first that a .cu includes
# Or one of these if PyTorch's come next; the first of each pair in a .cu, the second in a .cpp.
WITH_TORCH = "simulator/with_torch.h", "simulator/torch.h"
WITH_TYPES = "simulator/with_torch_types.h", "simulator/torch_types.h"
STABLE = "stable_torch.h"  # for bindings for a GPU
FOR_SET_UP = Path(__file__).with_name("stable_torch.cpp")  # building this source makes it
LEAST_FREE = 5e9  # bytes of free disk, below which PyTorch's headers are not precompiled

_NOTE = "made.json"
# Flags that may put something before the header, or replace headers that it includes.
_OTHERWISE = re.compile(r"-(include|imacros|iquote|idirafter|nostdinc|-?sysroot|specs|[IDU]$)")
_PATHS = ("CPATH", "CPLUS_INCLUDE_PATH")
# Flags that differ between builds: names, header folders, and macros of the user that headers may
# test. g++ itself checks whether a macro affects the header.
_OF_ONE_BUILD = re.compile(r"-I|-D(?!SIMULATOR_|PLAYGROUND_|THRUST_|CCCL_|TORCH_API_|_GLIBCXX_)|-U")
_BLAMED = re.compile(r"\bPCH\b|precompiled header|internal compiler error")
_FLAGS = re.compile(rf"-I(\S+) -fpch-deps (?:-include {STABLE} )?")

_BEGINNINGS = {
    "torch/extension.h": WITH_TORCH,
    "torch/torch.h": WITH_TORCH,
    "torch/types.h": WITH_TYPES,
    "ATen/ATen.h": WITH_TYPES,
}
# The second one is for g++, and not in bindings for a GPU.
_MEANS_NOTHING = re.compile(r"#[ \t]*(?:pragma[ \t]+once|undef[ \t]+__F16C__)\b")
_GUARD = re.compile(r"\A\s*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\n\s*#[ \t]*define[ \t]+\1[ \t]*\n")


class Parsed(NamedTuple):
    """Precompiled headers that a build can use.

    Attributes:
        header: the header that includes them, and that sources include.
        place: the folder where they are, or will be.
        command: the g++ command without the files.
    """

    header: str
    place: Path
    command: list[str]

    @property
    def source(self) -> Path:
        folder = Path(__file__).parent if self.header == STABLE else simulator.INCLUDE
        return folder / self.header

    @property
    def flags(self) -> str:
        """The flags with which g++ finds them. Bindings for a GPU do not include their header."""
        named = f"-include {STABLE} " if self.header == STABLE else ""
        return f"-I{for_ninja(str(self.place))} -fpch-deps {named}"

    @classmethod
    def each(cls, text: str, code: Code, folders: Sequence[Path]) -> list[Parsed]:
        """The precompiled headers for a ninja file; empty if none can be used.

        folders: as in `added_to`.
        """
        recipe = code.recipe
        wanted = not sources.folders_in(recipe.flags, "-isystem")
        wanted = wanted and not recipe.sources[0].is_relative_to(SIMULATOR)  # compiled once
        if not wanted or sys.platform != "linux" or machine.is_clang(code.compilers):
            return []
        if recipe.target == "cuda":
            headers = [STABLE] * _begins_with_stable_torch(code)
        else:
            begun = () if recipe.check else (come_first(code, path) for path in recipe.sources)
            headers = sorted({header for header in begun if header})
            if not headers and code.binding in ("c", "part"):
                headers = [HEADER]
        if not headers:
            return []
        cxx, flags = (
            _words(re.search(rf"(?m)^{name} = (.*)$", text)[1]) for name in ("cxx", "cflags")
        )
        if any(map(_OTHERWISE.match, flags)) or not os.environ.keys().isdisjoint(_PATHS):
            return []
        flags = [flag for flag in flags if not _OF_ONE_BUILD.match(flag)]
        if recipe.target == "cuda":
            command = [*cxx, *flags, "-x", "c++-header"]
        else:
            flags[flags.index("-x") + 1] = "c++-header"
            command = [*cxx, *flags, f"-I{simulator.INCLUDE}"]
        return [cls._of(code, header, command, folders) for header in headers]

    @classmethod
    def _of(cls, code: Code, header: str, command: list[str], folders: Sequence[Path]) -> Parsed:
        key = digest_of(code.compilers, machine.cpu(), header, *command)[:16]
        places = [folder / key for folder in folders]
        return cls(header, next(filter(_is_whole, places), places[0]), command)


def first(code: Code, path: Path) -> str | None:
    """The header to include before the first line of a user's source."""
    return come_first(code, path) or (HEADER if path.suffix == ".cu" else None)


def come_first(code: Code, path: Path) -> str | None:
    """The header for a source that begins with including PyTorch's headers.

    Other system headers may come before them: the order makes no difference.
    """
    pair = _beginning(code, path)
    return pair[path.suffix != ".cu"] if pair else None


def _beginning(code: Code, path: Path) -> tuple[str, str] | None:
    return next((_BEGINNINGS[it] for it in _begins(code, path) if it in _BEGINNINGS), None)


def _begins_with_stable_torch(code: Code) -> bool:
    """Whether each source for the host begins with including the stable ABI's headers."""
    compiled = [path for path in code.recipe.sources if path.suffix != ".cu"]
    return (
        bool(compiled)
        and not code.recipe.program
        and all(
            any(name.startswith("torch/csrc/stable/") for name in _begins(code, path))
            for path in compiled
        )
    )


def _begins(code: Code, path: Path) -> Iterator[str]:
    """The system headers that a source begins with."""
    text = without_comments(code.text(path)).removeprefix("\ufeff")
    for line in map(str.strip, _GUARD.sub("", text).splitlines()):
        if not line or _MEANS_NOTHING.match(line):
            continue
        include = re.match(sources.INCLUDE, line)
        if include is None:
            return
        if header := code.header(path, include[1], include[2]):
            if header != path:
                yield from _begins(code, header)
            return
        yield include[2]


def added_to(text: str, code: Code, folders: Sequence[Path], work: Path) -> str:
    """The ninja file with flags for precompiled headers, if these can be used.

    Args:
        folders: where they may be; new ones are kept in the first.
        work: the folder in which they are made.
    """
    for parsed in Parsed.each(text, code, folders):
        place = parsed.place
        is_for_now = parsed.header == HEADER or code.recipe.sources == (FOR_SET_UP,)
        if not _is_whole(place) and is_for_now:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                _make(parsed, work / "precompiled")
        note = read_note(place / _NOTE)
        unusable = not note or not note["sha256_of_file"] or not _is_whole(place)
        if unusable or any(_is_before(note, folder) for folder in code.recipe.include):
            continue
        with contextlib.suppress(OSError):
            os.utime(place / _NOTE)  # `prune` removes what was not used for long
        text = text.replace("\ncflags = ", f"\ncflags = {parsed.flags}", 1)
    return text


def missing(text: str, code: Code, folders: Sequence[Path]) -> list[Parsed]:
    """Missing precompiled headers of PyTorch that this build would have used."""
    if torch_headers.ALL in text:
        return []
    text = _FLAGS.sub("", text)
    parsed = Parsed.each(text, code, folders)
    return [each for each in parsed if each.header != HEADER and not _is_whole(each.place)]


def make_aside(parsed: Parsed, work: Path, lifeline: int) -> None:
    """Precompile headers at idle priority until `lifeline` ends, if the disk has enough space."""
    if shutil.disk_usage(work).free >= LEAST_FREE and not _is_whole(parsed.place):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _make(parsed, work / "precompiled", lifeline)


def without(text: str, output: str) -> tuple[str, list[Path]] | None:
    """The ninja file without precompiled headers, and their folders, if they may have failed.

    output: the compiler's.
    """
    places = _FLAGS.findall(text)
    if not places or not _BLAMED.search(output):
        return None
    return _FLAGS.sub("", text), [Path(*_words(place)) for place in places]


def with_all_of_torch(text: str) -> str:
    """The ninja file with all of PyTorch's headers, which are not precompiled."""
    return _FLAGS.sub("", text).replace("\ncflags = ", f"\ncflags = {torch_headers.ALL} ", 1)


def refuse(place: Path) -> None:
    """Never use these precompiled headers again."""
    for parsed in place.rglob("*.gch"):
        discard(parsed)
    with contextlib.suppress(OSError):
        write_note(place / _NOTE, {"read": [], "names": [], "sha256_of_file": ""})


def _words(text: str) -> list[str]:
    """The words of a command in a ninja file."""
    return shlex.split(re.sub(r"\$(.)", r"\1", text))


def _make(wanted: Parsed, work: Path, lifeline: int | None = None) -> None:
    """Make the precompiled headers, and move them to `wanted.place` atomically."""
    _, place, command = wanted
    source = wanted.source
    parsed = work / f"{wanted.header}.gch"
    parsed.parent.mkdir(parents=True)
    # -MMD stores the headers that were read, for later depfiles; -H prints all of them.
    more = ["-MMD", "-MF", os.devnull, "-H", str(source), "-o", str(parsed)]
    run = subprocess.run(
        [*(() if lifeline is None else idle.COMMAND), *command, *more],
        stdin=lifeline,
        capture_output=True,
        text=True,
        check=True,
        timeout=machine.PATIENCE if lifeline is None else None,
        env={**os.environ, "LC_ALL": "C"},
    )
    read = [str(source), *re.findall(r"^\.+ (.+)$", run.stderr, re.MULTILINE)]
    note = {
        "read": [[path, *_state(path)] for path in dict.fromkeys(read)],
        "names": sorted(_names(read, command)),
        "sha256_of_file": _content(parsed),
    }
    write_note(work / _NOTE, note)
    publish_folder(work, place)


def _names(read: Iterable[str], command: list[str]) -> set[str]:
    """The beginnings of the names with which the headers may be included."""
    given = [folder for flag, folder in pairwise(command) if flag == "-isystem"]
    folders = [str(simulator.INCLUDE), *given, *map(str, machine.compilers_headers(*command))]
    return {
        os.path.relpath(path, folder).partition(os.sep)[0]
        for path in map(os.path.normpath, read)
        for folder in folders
        if path.startswith(f"{folder}{os.sep}")
    }


def _state(path: str) -> list[int]:
    """What tells whether a file has changed."""
    status = os.stat(path)  # noqa: PTH116 - hundreds for each build
    return [status.st_size, status.st_mtime_ns]


def _is_whole(place: Path) -> bool:
    """Whether the precompiled headers are there and current, or are refused."""
    note = read_note(place / _NOTE)
    with contextlib.suppress(OSError):
        if note and all(_state(path) == was for path, *was in note["read"]):
            digest = note["sha256_of_file"]
            files = {str(path): _state(str(path))[1] for path in place.rglob("*.gch")}
            return not digest or any(digest == _digest(*item) for item in files.items())
    return False


def _is_before(note: dict[str, Any], folder: Path) -> bool:
    """Whether a user's folder has something with a name that the headers include."""
    return any(os.path.lexists(f"{folder}{os.sep}{name}") for name in note["names"])


@cache
def _digest(path: str, changed: int) -> str:
    """The digest of a file of precompiled headers, once per process unless it changes."""
    return _content(Path(path))


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
