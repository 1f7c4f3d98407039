"""The object that a compiler made of one source, taken over by a build whose source is the same.

A build has a name of its own, and the sources know it as TORCH_EXTENSION_NAME: an object holds it
in strings and symbols. All names of one kernel's builds are of the same length. So the object that
the compiler would make under another name is this one with the other name in its place, unless it
holds the name in another form: then it is compiled again.
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

_DIGITS = 16  # at the end of a build's name, where it differs from the others
# Bytes. A compiler that copies a string by instructions takes 8 or 16 at a time, and so many digits
# stand together in one of those. Fewer would be found by chance, in a path or a number.
_PIECE = 6
_FOR_LATER = b".gnu.lto_", b"BC\xc0\xde"  # what marks an object that the linker is to compile


@dataclass(frozen=True)
class Object:
    """One source's.

    Attributes:
        key: of all that decided it but for the name of the build.
        build: the name of the build for which it was compiled.
        read: the labels of the user's files that the compiler read.
        called: the headers of simulator.LIBRARIES that it read.
        said: the compiler's command and its output: warnings, and the registers of kernels.
        data: the file itself.
    """

    key: str
    build: str
    read: list[str]
    called: list[str]
    said: str
    data: bytes

    def renamed(self, build: str) -> bytes:
        """The object as it would be for another build of the same kernel."""
        return self.data.replace(self.build.encode(), build.encode())

    def can_be_renamed(self) -> bool:
        """Whether it holds the name of its build nowhere but in one piece."""
        rest = self.data.replace(self.build.encode(), b"\0")
        digits = self.build[-_DIGITS:].encode()
        pieces = (digits[n : n + _PIECE] for n in range(_DIGITS - _PIECE + 1))
        return not any(piece in rest for piece in (*pieces, *_FOR_LATER))


class Earlier(NamedTuple):
    """What is known from the builds before.

    settings: for each source the digest of all that decides its object besides the files, such as
        compilers and flags.
    objects: the last one of each source, by the source's position.
    stub_libraries, precompiled: the folders of the modules of these names.
    """

    settings: list[str]
    objects: dict[int, Object]
    stub_libraries: list[Path]
    precompiled: list[Path]


class Objects:
    """Those of one build.

    Attributes:
        unchanged: the earlier ones that it takes over, by the sources' positions; they lie in
            `work` as if the compiler had just made them.
    """

    def __init__(
        self,
        code: Code,
        name: str,
        work: Path,
        written: Mapping[int, dict[Path, str]],
        known: Earlier,
    ):
        """written: of each source, by its position, the texts of the files that the compiler is
        given otherwise than they stand."""
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
        """What the compiler made of the other sources; those of which it wrote no depfile miss.

        output: ninja's.
        users: gives the user's file that a path in a depfile stands for, None for other files.
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
        """Whether an object is for later builds: its key covers it, and it can be renamed."""
        made_from = self._made_from[number]
        known = made_from.files.issuperset(compiled.read)
        return known and made_from.renames and compiled.can_be_renamed()


class _Making(NamedTuple):
    """What one source's object is made from.

    key: as of Object.
    files: the labels of those files.
    renames: whether another build's name can be put into what the compiler makes of them.
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
        # nvcc compresses the code for the GPU: what stands there of a name cannot be exchanged.
        by_nvcc = code.recipe.target == "cuda" and path.suffix == ".cu"
        renames = not (by_nvcc and any(UNIQUE in text for text in texts.values()))
        return cls(key, frozenset(texts), renames)


def _outputs(output: str) -> dict[int, str]:
    """Of each source what ninja shows: the command, and the compiler's output."""
    steps = re.split(r"^(?=\[\d+/\d+\] )", output, flags=re.MULTILINE)
    made = ((re.search(r" -o (\d+)\.", step.partition("\n")[0]), step) for step in steps)
    return {int(source[1]): step for source, step in made if source}


def _read_for(code: Code, path: Path) -> set[Path]:
    """The files that decide the object of a source: those that no other source alone includes.

    A file that a macro names counts for every source: who includes it is not known.
    """
    of_each = {source: _reached_from(code, source) for source in code.recipe.sources}
    return of_each[path] | (code.files.keys() - set().union(*of_each.values()))


def _reached_from(code: Code, source: Path) -> set[Path]:
    reached = [source]
    for path in reached:  # which grows meanwhile
        for quote, name in sources.asked_for(code.text(path)):
            header = code.header(path, quote, name)
            if header and header not in reached:
                reached.append(header)
    return set(reached)
