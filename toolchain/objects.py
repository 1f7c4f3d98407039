"""Reuses the object that a compiler made of a source in builds with the same source.

A build has a name of its own, which sources use as TORCH_EXTENSION_NAME, so it is in the strings
and symbols of objects. The names of all builds of a kernel have the same length. So an object for
another name is made by replacing the name, unless the object has the name in another form: then it
is compiled again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import simulator
from toolchain import sources
from toolchain.code import Code
from toolchain.notes import digest_of
from toolchain.registrations import UNIQUE
from toolchain.sources import label

_DIGITS = 16  # at the end of a build's name, the only part that differs
# Bytes. A compiler that copies a string with instructions copies 8 or 16 bytes at a time, so at
# least this many digits are together. Fewer could match by chance, in a path or a number.
_PIECE = 6
_FOR_LATER = b".gnu.lto_", b"BC\xc0\xde"  # in objects that the linker has to compile


@dataclass(frozen=True)
class Object:
    """The object of one source.

    Attributes:
        key: the digest of all that decided it, except the build's name.
        build: the name of the build for which it was compiled.
        read: the labels of the user's files that the compiler read.
        called: the headers of simulator.LIBRARIES that it read.
        said: the compiler's command and its output, such as warnings and kernels' registers.
        data: the file itself.
    """

    key: str
    build: str
    read: list[str]
    called: list[str]
    said: str
    data: bytes

    def renamed(self, build: str) -> bytes:
        """The object for another build of the same kernel."""
        return self.data.replace(self.build.encode(), build.encode())

    def can_be_renamed(self) -> bool:
        """Whether its build's name occurs only as a whole."""
        rest = self.data.replace(self.build.encode(), b"\0")
        digits = self.build[-_DIGITS:].encode()
        pieces = (digits[n : n + _PIECE] for n in range(_DIGITS - _PIECE + 1))
        return not any(piece in rest for piece in (*pieces, *_FOR_LATER))


class Earlier(NamedTuple):
    """What earlier builds have left.

    settings: for each source the digest of all that decides its object besides the files, such as
        compilers and flags.
    objects: the last object of each source, by the source's position.
    stub_libraries, precompiled: the folders for the modules of these names.
    """

    settings: list[str]
    objects: dict[int, Object]
    stub_libraries: list[Path]
    precompiled: list[Path]


class Objects:
    """The objects of one build.

    Attributes:
        unchanged: the earlier objects that it reuses, by the sources' positions; they are in
            `work`, as if the compiler had just made them.
    """

    def __init__(
        self,
        code: Code,
        name: str,
        work: Path,
        written: Mapping[int, dict[Path, str]],
        known: Earlier,
    ):
        """written: for each source, by its position, the texts of files that are changed for the
        compiler."""
        self._name, self._work = name, work
        whole = code.recipe.part.build if code.recipe.part else None  # it has all launchers
        self._made_from = [
            _Making.of(code, path, written.get(number, {}), known.settings[number])
            for number, path in enumerate(code.recipe.sources)
        ]
        self.unchanged = {
            number: known.objects[number]
            for number, made_from in enumerate(self._made_from)
            if number in known.objects
            and (known.objects[number].key == made_from.key or known.objects[number].build == whole)
        }
        for number, earlier in self.unchanged.items():
            (work / f"{number}.o").write_bytes(earlier.renamed(name))

    def compiled(self, output: str, users: Callable[[Path], Path | None]) -> dict[int, Object]:
        """The new objects of the other sources; those without a depfile are left out.

        output: ninja's output.
        users: returns the user's file for a path in a depfile, None for other files.
        """
        compiled, outputs = {}, _outputs(output)
        for number, made_from in enumerate(self._made_from):
            depfile = next(self._work.glob(f"{number}.*d"), None)  # 0.o.d, or 0.cuda.o.d
            if number in self.unchanged or depfile is None:
                continue
            read = sources.read_depfile(depfile)
            called = [name for name in simulator.LIBRARIES if simulator.INCLUDE / name in read]
            labels = sorted({label(path) for path in map(users, read) if path})
            data = depfile.with_suffix("").read_bytes()
            compiled[number] = Object(
                made_from.key, self._name, labels, called, outputs.get(number, ""), data
            )
        return compiled

    def can_be_taken_over(self, number: int, compiled: Object) -> bool:
        """Whether later builds can reuse an object: its key covers it, and it can be renamed."""
        made_from = self._made_from[number]
        known = made_from.files.issuperset(compiled.read)
        return known and made_from.renames and compiled.can_be_renamed()


class _Making(NamedTuple):
    """What decides one source's object.

    key: as in Object.
    files: the labels of the files that the key covers.
    renames: whether the build's name can be replaced in the object.
    """

    key: str
    files: frozenset[str]
    renames: bool

    @classmethod
    def of(cls, code: Code, path: Path, written: dict[Path, str], settings: str) -> _Making:
        read = _read_for(code, path)
        texts = {label(file): written.get(file) or code.text(file) for file in read}
        same = (part for named in sorted(texts.items()) for part in named)
        key = digest_of(settings, label(path), code.launchers[path], *same)[:16]
        # nvcc compresses GPU code: a name in it cannot be replaced.
        by_nvcc = code.recipe.target == "cuda" and path.suffix == ".cu"
        renames = not (by_nvcc and any(UNIQUE in text for text in texts.values()))
        return cls(key, frozenset(texts), renames)


def _outputs(output: str) -> dict[int, str]:
    """For each source the command and the compiler's output, as ninja prints them."""
    steps = re.split(r"^(?=\[\d+/\d+\] )", output, flags=re.MULTILINE)
    made = ((re.search(r" -o (\d+)\.", step.partition("\n")[0]), step) for step in steps)
    return {int(source[1]): step for source, step in made if source}


def _read_for(code: Code, path: Path) -> set[Path]:
    """The files that decide the object of a source: all but those that only other sources include.

    A file that a macro names counts for every source, because it is not known which include it.
    """
    of_each = {source: _reached_from(code, source) for source in code.recipe.sources}
    return of_each[path] | (code.files.keys() - set().union(*of_each.values()))


def _reached_from(code: Code, source: Path) -> set[Path]:
    reached = [source]
    for path in reached:  # it grows during the loop
        for quote, name in sources.asked_for(code.text(path)):
            header = code.header(path, quote, name)
            if header and header not in reached:
                reached.append(header)
    return set(reached)
