"""Preprocesses a source and its headers: expands macros and takes branches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import simulator
from simulator.scan import without_comments
from toolchain import machine
from toolchain.sources import LIBRARY, included, values_of

if TYPE_CHECKING:
    from toolchain.code import Code

_DECIDES = re.compile(r"^[ \t]*#[ \t]*(?:define|if|ifdef|ifndef)\b", re.MULTILINE)
_INCLUDE_LINE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?[ \t]*(["<])([^">\n]+)[">].*$')
_INCLUDE_BY_MACRO = re.compile(r"^[ \t]*#[ \t]*include[ \t]+(\w.*)$")
_ONCE_LINE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b")
# An #error may depend on a system header's macros; and lines are numbered otherwise here.
_LEFT_OUT_LINE = re.compile(r"^[ \t]*#[ \t]*(?:error|line|\d+)\b")
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_MARKER = re.compile(r'#(?:line)? (\d+) "((?:\\.|[^"\\])*)"')
_DEEPEST = 50  # nested includes: a header that includes itself stops here
_INCLUDES = "JITLOAD_INCLUDES_"  # replaces an #include whose header a macro names
_NAMED_BY_MACRO = re.compile(rf'^{_INCLUDES}(\d+)\s*(["<])([^">\n]+)[">]', re.MULTILINE)


# Macros in #if conditions that have the same values here as when the source is compiled.
_KNOWN = {"__CUDA_ARCH__", "__CUDACC__", "__NVCC__", "__cplusplus", "PLAYGROUND_CUDA", "defined"}
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(.*)", re.MULTILINE)


@dataclass(frozen=True)
class Unit:
    """The code of one source and its own headers, in the order in which it is compiled.

    It has no directives and no comments.

    places: the file and the line that each line comes from.
    """

    text: str
    places: tuple[tuple[Path, int], ...]

    def of(self, path: Path) -> str:
        """Only the lines from this file."""
        lines = zip(self.text.split("\n"), self.places, strict=False)
        return "\n".join(line for line, (file, _) in lines if file == path)


def preprocessed(code: Code, path: Path) -> tuple[Unit, ...]:
    """The code of a source and of the files that it and they include with quotes.

    Those are the user's own; libraries' headers are included with angle brackets. Macros that the
    source or a user's header defines are expanded. System headers are read only if a condition may
    depend on them; otherwise this takes about 10 ms. If they cannot be read, there are two units:
    one with their macros undefined, and one with these as large numbers. If the preprocessor fails,
    the unit is the unchanged text.
    """
    named: dict[tuple[Path, int], tuple[str, str]] = {}  # by the line of an #include with a macro
    while True:
        flat = _Flat(code, path, named)
        texts = flat.expanded()
        by_macro = {
            flat.by_macro[int(number)]: (quote, name)
            for text in texts
            for number, quote, name in _NAMED_BY_MACRO.findall(text)
        }
        if by_macro.keys() <= named.keys():
            return tuple(map(flat.unit, texts))
        named |= by_macro


class _Flat:
    """A source with the user's headers copied to where they are included.

    #line directives number the files as they are included.
    """

    def __init__(self, code: Code, path: Path, named: dict[tuple[Path, int], tuple[str, str]]):
        self.code, self.path, self.named = code, path, named
        self.by_macro: list[tuple[Path, int]] = []  # the lines that include with a macro
        self._owners: list[Path | None] = []  # by number; None: not a user's own file
        self._of_library: set[Path] = set()  # those that are in the text already
        self._lines: list[str] = []
        for name in values_of(code.callers_flags, "-include"):
            if header := code.header(path, '"', name):
                self._add(header, '"', ())
        self._add(path, '"', ())
        self.text = "\n".join(self._lines)

    def _add(self, path: Path, quote: str, above: tuple[int, ...]) -> None:
        number = len(self._owners)
        own = quote == '"' and not path.is_relative_to(LIBRARY)
        own = own and all(self._owners[outer] for outer in above)
        self._owners.append(path if own else None)
        above = (*above, number)
        self._lines.append(f'#line 1 "{number}"')
        once = 0
        text = without_comments(self.code.text(path).removeprefix("\ufeff"))
        for position, line in enumerate(text.split("\n"), 1):
            place = path, position
            if include := _INCLUDE_LINE.match(line):
                self._include(path, *include.groups(), above)
            elif place in self.named:
                self._include(path, *self.named[place], above)
            elif by_macro := _INCLUDE_BY_MACRO.match(line):
                self._lines.append(f"{_INCLUDES}{len(self.by_macro)} {by_macro[1]}")
                self.by_macro.append(place)
                continue
            elif _ONCE_LINE.match(line):  # #pragma once has no meaning in this text
                guard = f"JITLOAD_ONCE_{list(self.code.files).index(path)}"
                self._lines += [f"#ifndef {guard}", f"#define {guard}"]
                once += 1
            else:
                self._lines.append("" if _LEFT_OUT_LINE.match(line) else line)
                continue
            self._lines.append(f'#line {position + 1} "{number}"')
        self._lines += ["#endif"] * once

    def _include(self, path: Path, quote: str, name: str, above: tuple[int, ...]) -> None:
        header = self.code.header(path, quote, name)
        if header is None or len(above) > _DEEPEST or header in self._of_library:
            return
        if header in self.code.of_library:  # they have guards, and include each other
            self._of_library.add(header)
        self._add(header, quote, above)

    def expanded(self) -> list[str]:
        """The preprocessed text, for each way in which it may be compiled."""
        recipe, (command, flags) = self.code.recipe, machine.cxx_command()
        if not (_DECIDES.search(self.text) or self.by_macro):
            return [self.text]
        for_cuda = recipe.target == "cuda"
        macros = ["-D__CUDACC__", "-D__NVCC__"] if self.path.suffix == ".cu" else []
        macros.append(f"-DPLAYGROUND_CUDA={int(for_cuda)}")
        flags = [*flags, *self.code.callers_flags]
        macros += [f"-{o}{value}" for o in "DU" for value in values_of(flags, f"-{o}")]
        conditions = _CONDITION.findall(self.text)
        asked = {name for condition in conditions for name in _WORD.findall(condition)}
        defined = {*_DEFINED.findall(self.text)}
        defined |= {re.split("[=(]", macro[2:])[0] for macro in macros}
        unknown = sorted(asked - defined - _KNOWN)
        preprocess = [*command, "-E", "-w", "-x", "c++", *macros]
        large = [f"-D{name}=999999" for name in unknown]
        ways = [[], large] if unknown else [[]]
        outputs = [_output_of([*preprocess, *way, "-"], self.text) for way in ways]
        if len(set(outputs)) > 1:  # then it is worth the time to read their headers
            known = self._defined_by_headers(preprocess, unknown)
            if known is not None:
                outputs = [_output_of([*preprocess, *known, "-"], self.text)]
        return [self.text if output is None else output for output in outputs]

    def _defined_by_headers(self, preprocess: list[str], names: list[str]) -> list[str] | None:
        """Flags for those of these macros that system headers define; None if this is unknown."""
        includes = [pair for path in self.code.files for pair in included(self.code.text(path))]
        headers = [
            f"#include <{name}>"
            for quote, name in dict.fromkeys(includes)
            if not any(self.code.header(path, quote, name) for path in self.code.files)
        ]
        cuda = machine.cuda_home() if self.code.recipe.target == "cuda" else None
        folders = [simulator.INCLUDE] if cuda is None else [f"{cuda}/include"]
        places = [f"-I{folder}" for folder in (*folders, *self.code.recipe.include)]
        first = "" if cuda is None else "#include <cuda_runtime.h>"
        defines = _output_of([*preprocess, "-dM", *places, "-"], "\n".join([first, *headers]))
        if defines is None:
            return None
        values = dict(re.findall(r"^#define (\w+)(?!\() ?(.*)$", defines, re.MULTILINE))
        return [f"-D{name}={values[name]}" for name in names if name in values]

    def unit(self, text: str) -> Unit:
        """The user's own lines of a text that `expanded` returned."""
        lines, places = [], []
        path, number = None, 0
        for line in text.split("\n"):
            if marker := _MARKER.match(line):
                number, name = int(marker[1]), marker[2]
                path = self._owners[int(name)] if name.isdecimal() else None
                continue
            if path and not line.startswith(_INCLUDES):
                lines.append(line)
                places.append((path, number))
            number += 1
        return Unit("\n".join(lines), tuple(places))


def _output_of(command: list[str], text: str) -> str | None:
    return machine.output_of(command, f"{text}\n")
