"""The simulator's headers, and PyTorch's, parsed once: what g++ reads in their place.

They and the standard headers that they include are 25,000 lines, which take longer to parse than a
small kernel to compile. g++ writes what it knows after a header to a file of 22 MB, and a later run
with the same flags begins with that. It is made once for each compiler and set of flags, and lies
in a folder that is looked into before those with headers; where it does not fit, g++ goes on to
the header itself.

It is for what is compiled again and again: parts of a kernel, and kernels without a binding. And
for a .cu or .cpp that begins with PyTorch's headers: these take a file of up to 600 MB and half a
minute, so they are parsed in the background, after the first build that reads them.

For a GPU they are those of PyTorch's stable ABI, half of what a binding takes to compile: 70 MB,
which set-up makes in two seconds, and else the background after the first binding.
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
# Or one of these, where PyTorch's come next; the first of each pair in a .cu, the other in a .cpp.
WITH_TORCH = "simulator/with_torch.h", "simulator/torch.h"
WITH_TYPES = "simulator/with_torch_types.h", "simulator/torch_types.h"
STABLE = "stable_torch.h"  # what bindings for a GPU begin with
FOR_SET_UP = Path(__file__).with_name("stable_torch.cpp")  # a source whose build parses that
LEAST_FREE = 5e9  # bytes, else nothing of PyTorch's is written

_NOTE = "made.json"
# What may put something else before the header, or in the place of those that it includes.
_OTHERWISE = re.compile(r"-(include|imacros|iquote|idirafter|nostdinc|-?sysroot|specs|[IDU]$)")
_PATHS = ("CPATH", "CPLUS_INCLUDE_PATH")
# What differs between builds: their names, where their headers lie, and the user's macros that
# headers may ask for. Whether one of those means anything to the header, g++ looks itself.
_OF_ONE_BUILD = re.compile(r"-I|-D(?!SIMULATOR_|PLAYGROUND_|THRUST_|CCCL_|TORCH_API_|_GLIBCXX_)|-U")
_BLAMED = re.compile(r"\bPCH\b|precompiled header|internal compiler error")
_FLAGS = re.compile(rf"-I(\S+) -fpch-deps (?:-include {STABLE} )?")

_BEGINNINGS = {
    "torch/extension.h": WITH_TORCH,
    "torch/torch.h": WITH_TORCH,
    "torch/types.h": WITH_TYPES,
    "ATen/ATen.h": WITH_TYPES,
}
# The latter is g++'s, and not for a GPU's bindings.
_MEANS_NOTHING = re.compile(r"#[ \t]*(?:pragma[ \t]+once|undef[ \t]+__F16C__)\b")
_GUARD = re.compile(r"\A\s*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\n\s*#[ \t]*define[ \t]+\1[ \t]*\n")


class Parsed(NamedTuple):
    """Parsed headers that a build can use.

    Attributes:
        header: the one that includes them, as sources do.
        place: where they lie, or will.
        command: what g++ is called with, but for the files.
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
        """By which g++ finds them. Bindings for a GPU do not name their header."""
        named = f"-include {STABLE} " if self.header == STABLE else ""
        return f"-I{for_ninja(str(self.place))} -fpch-deps {named}"

    @classmethod
    def each(cls, text: str, code: Code, folders: Sequence[Path]) -> list[Parsed]:
        """Those for a file for ninja; none where there can be none.

        folders: as of `added_to`.
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
    """What a source of the user's includes before its first line."""
    return come_first(code, path) or (HEADER if path.suffix == ".cu" else None)


def come_first(code: Code, path: Path) -> str | None:
    """The header for a source that includes PyTorch's headers before it says anything else.

    Other headers of the system may stand before them: their order makes no difference.
    """
    pair = _beginning(code, path)
    return pair[path.suffix != ".cu"] if pair else None


def _beginning(code: Code, path: Path) -> tuple[str, str] | None:
    return next((_BEGINNINGS[it] for it in _begins(code, path) if it in _BEGINNINGS), None)


def _begins_with_stable_torch(code: Code) -> bool:
    """Whether each source for the host includes the stable ABI's headers before it says anything
    else."""
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
    """The headers of the system that a source includes before it says anything else."""
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
    """A file for ninja whose C++ compiler finds the headers parsed, where that can be.

    Args:
        folders: where they may be kept; what is made is kept in the first.
        work: where they are made before they appear there.
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
            os.utime(place / _NOTE)  # what is not used for long, `prune` removes
        text = text.replace("\ncflags = ", f"\ncflags = {parsed.flags}", 1)
    return text


def missing(text: str, code: Code, folders: Sequence[Path]) -> list[Parsed]:
    """PyTorch's headers, where this build would have used them if they had been parsed."""
    if torch_headers.ALL in text:
        return []
    text = _FLAGS.sub("", text)
    parsed = Parsed.each(text, code, folders)
    return [each for each in parsed if each.header != HEADER and not _is_whole(each.place)]


def make_aside(parsed: Parsed, work: Path, lifeline: int) -> None:
    """Parse them on what others leave of the processor, until `lifeline` ends; with enough disk."""
    if shutil.disk_usage(work).free >= LEAST_FREE and not _is_whole(parsed.place):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _make(parsed, work / "precompiled", lifeline)


def without(text: str, output: str) -> tuple[str, list[Path]] | None:
    """The file for ninja without the parsed headers, and where they are, if they may be at fault.

    output: the compiler's.
    """
    places = _FLAGS.findall(text)
    if not places or not _BLAMED.search(output):
        return None
    return _FLAGS.sub("", text), [Path(*_words(place)) for place in places]


def with_all_of_torch(text: str) -> str:
    """The file for ninja with PyTorch's headers whole, which are not parsed."""
    return _FLAGS.sub("", text).replace("\ncflags = ", f"\ncflags = {torch_headers.ALL} ", 1)


def refuse(place: Path) -> None:
    """Never use those again that are there."""
    for parsed in place.rglob("*.gch"):
        discard(parsed)
    with contextlib.suppress(OSError):
        write_note(place / _NOTE, {"read": [], "names": [], "sha256_of_file": ""})


def _words(text: str) -> list[str]:
    """Those of a command in a file for ninja."""
    return shlex.split(re.sub(r"\$(.)", r"\1", text))


def _make(wanted: Parsed, work: Path, lifeline: int | None = None) -> None:
    """Let the folder `wanted.place` appear with the parsed headers, at once."""
    _, place, command = wanted
    source = wanted.source
    parsed = work / f"{wanted.header}.gch"
    parsed.parent.mkdir(parents=True)
    # -MMD has it remember what it has read for the depfiles to come, -H has it say all of that.
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
    """How the names begin by which the headers may be included."""
    given = [folder for flag, folder in pairwise(command) if flag == "-isystem"]
    folders = [str(simulator.INCLUDE), *given, *map(str, machine.compilers_headers(*command))]
    return {
        os.path.relpath(path, folder).partition(os.sep)[0]
        for path in map(os.path.normpath, read)
        for folder in folders
        if path.startswith(f"{folder}{os.sep}")
    }


def _state(path: str) -> list[int]:
    """What tells that a file is still the same one."""
    status = os.stat(path)  # noqa: PTH116 - of some hundreds, for each build
    return [status.st_size, status.st_mtime_ns]


def _is_whole(place: Path) -> bool:
    """Whether the parsed headers are there, and are those of today; or whether they are refused."""
    note = read_note(place / _NOTE)
    with contextlib.suppress(OSError):
        if note and all(_state(path) == was for path, *was in note["read"]):
            digest = note["sha256_of_file"]
            files = {str(path): _state(str(path))[1] for path in place.rglob("*.gch")}
            return not digest or any(digest == _digest(*item) for item in files.items())
    return False


def _is_before(note: dict[str, Any], folder: Path) -> bool:
    """Whether a folder of the user's has something under a name that the headers include."""
    return any(os.path.lexists(f"{folder}{os.sep}{name}") for name in note["names"])


@cache
def _digest(path: str, changed: int) -> str:
    """Of a file with parsed headers; once in a process, as long as it stays."""
    return _content(Path(path))


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
