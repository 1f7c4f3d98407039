"""Where CUDA is compiled for the device: in the bodies of `__global__` and `__device__` functions.

nvcc compiles a file once for the host, without `__CUDA_ARCH__`, and once for the device, with it.
The simulator compiles it once, so the macro is defined where device code begins, and no longer
where it ends:

    __device__ float f(float x) {
    #define __CUDA_ARCH__ 900
    ...
    #undef __CUDA_ARCH__
    }

That takes knowing the macros of all files that are compiled together: `Load`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple
from zlib import crc32

from simulator.architectures import Architecture
from simulator.directives import (
    ARCHITECTURE,
    DIRECTIVE,
    VALUE,
    Directive,
    directives_of,
    in_function,
    spaces,
    without,
    without_pragmas_in_macros,
)
from simulator.needs import launches_by_address
from simulator.ptx import Macros
from simulator.scan import blank, closing, without_comments

_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?(.*)", re.DOTALL)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_VARIABLE = r"\b__(?:device|constant|managed)__\b"
_EXTERNAL = re.compile(rf"\bextern\b[^;(){{}}]*{_VARIABLE}[^;(){{}}]*?(\w+)\s*(?:\[[^;]*)?;")


class Choice(NamedTuple):
    """An #if outside of functions that asks for the architecture and defines macros, nothing else.

    The host and the device have macros of their own by it: it is asked again where device code
    begins, and where that ends.

    start, end: where it stands in its file.
    reach: its names, and the macros that lead to them.
    """

    names: frozenset[str]
    text: str
    start: int
    end: int
    reach: frozenset[str] = frozenset()

    @property
    def mark(self) -> str:
        """A macro that says that it has been compiled, which depends on where it stands."""
        return f"SIMULATOR_CHOICE_{crc32(self.text.encode()):x}"

    def forgotten(self) -> str:
        lines = "".join(f"#undef {name}\n" for name in sorted(self.names))
        return f"#ifdef {self.mark}\n{lines}#endif"

    def again(self) -> str:
        return f"#ifdef {self.mark}\n{self.text}\n#endif"

    @classmethod
    def in_text(cls, text: str, code: str, architecture: frozenset[str]) -> list[Choice]:
        if not any(word in text for word in architecture):
            return []
        directives = list(directives_of(text, code))
        plain, bare = without(directives, code), without_comments(text)
        waiting: list[tuple[int, bool]] = []  # of each open #if its index, and whether it asks
        found: list[Choice] = []
        for index, directive in enumerate(directives):
            words = _WORD.findall(code[directive.start : directive.end])
            asks = not architecture.isdisjoint(words)
            if directive.word == "if":
                waiting.append((index, asks))
            elif directive.word == "elif" and waiting and asks:
                waiting[-1] = waiting[-1][0], True
            elif directive.word == "endif" and waiting:
                first, asked = waiting.pop()
                start, end = directives[first].start, directive.end
                within = directives[first:index]
                names = frozenset(
                    _DEFINE.match(text, each.start)[1] for each in within if each.word == "define"
                )
                alone = not plain[start:end].strip() and all(d.word != "include" for d in within)
                if asked and names and alone and not in_function(plain, start, directives):
                    found = [choice for choice in found if choice.start < start]  # within this one
                    found.append(cls(names, bare[start:end], start, end))
        return found


@dataclass(frozen=True)
class Load:
    """What is known of all the files that are compiled together.

    device: the macros that mark a function as the device's, as `__device__` does.
    architecture: those that depend on `__CUDA_ARCH__`; empty where no file speaks of it.
    choices: where macros are defined in one way or another, as it says.
    several: whether several .cu files are compiled.
    external: the variables of the device that one file declares for another to define.
    macros: what puts PTX together.
    by_address: whether kernels are launched by their addresses.
    target: the architecture that the build is for; None is compute capability 9.0 with the
        instructions of all others.
    """

    device: frozenset[str] = frozenset({"__device__", "__global__"})
    architecture: frozenset[str] = frozenset()
    choices: tuple[Choice, ...] = ()
    several: bool = False
    external: frozenset[str] = frozenset()
    macros: Macros = field(default_factory=Macros)
    by_address: bool = False
    target: Architecture | None = None

    @classmethod
    def of(
        cls, texts: Iterable[str], several: bool = False, target: Architecture | None = None
    ) -> Load:
        texts = list(map(without_pragmas_in_macros, texts))
        macros = Macros.of(texts)
        declared = (_EXTERNAL.findall(blank(text)) for text in texts if several)
        external = frozenset(name for names in declared for name in names)
        plain = cls(
            several=several,
            external=external,
            macros=macros,
            by_address=any(map(launches_by_address, texts)),
            target=target,
        )
        if not any(ARCHITECTURE in text for text in texts):
            return plain
        replaced: dict[str, set[str]] = {}
        for text in texts:
            if "define" in text:
                for directive in DIRECTIVE.finditer(text):
                    if definition := _DEFINE.match(directive[0]):
                        words = replaced.setdefault(definition[1], set())
                        words.update(_WORD.findall(definition[3]))
        codes = [(text, blank(text)) for text in texts if "#" in text]
        architecture, found = _that_lead_to({ARCHITECTURE}, replaced), -1
        while found != len(architecture):  # a choice may depend on another
            found = len(architecture)
            choices = [c for text, code in codes for c in Choice.in_text(text, code, architecture)]
            chosen = (name for choice in choices for name in choice.names)
            architecture = _that_lead_to({*architecture, *chosen}, replaced)
        choices = [
            choice._replace(reach=_that_lead_to(choice.names, replaced)) for choice in choices
        ]
        device = _that_lead_to(cls.device, replaced)
        return replace(plain, device=device, architecture=architecture, choices=tuple(choices))

    def choices_for(self, words: Iterable[str]) -> list[Choice]:
        """Those that decide what these words stand for: those that others ask come first."""
        found: list[int] = []

        def find(index: int) -> None:
            if index not in found and index not in waiting:
                waiting.append(index)
                for asked in self._asked[index]:
                    find(asked)
                found.append(index)

        waiting: list[int] = []
        words = frozenset(words)
        for index, choice in enumerate(self.choices):
            if not choice.reach.isdisjoint(words):
                find(index)
        return [self.choices[index] for index in found]

    @cached_property
    def _asked(self) -> list[list[int]]:
        """Of each choice the others that define what it asks for, by their indices."""
        words = [frozenset(_WORD.findall(choice.text)) - choice.names for choice in self.choices]
        return [
            [index for index, other in enumerate(self.choices) if not other.names.isdisjoint(mine)]
            for mine in words
        ]


def _that_lead_to(words: Iterable[str], replaced: dict[str, set[str]]) -> frozenset[str]:
    """These words, and the macros that are replaced by one of them, or by such a macro."""
    found = set(words)
    while more := {name for name, by in replaced.items() if name not in found and by & found}:
        found |= more
    return frozenset(found)


class DeviceCode:
    """The device code of one text in which `__CUDA_ARCH__` is to be known.

    edits: what defines it there: from, to, what to put there.
    lines: those (from 1) on which it is defined.
    both: those that the host and the device read.
    value: what it is.
    """

    def __init__(self, text: str, code: str, load: Load):
        self.edits: list[tuple[int, int, str]] = []
        self.lines: set[int] = set()
        self.both: set[int] = set()
        self._text, self._code, self._load = text, code, load
        self.value = str(load.target.number) if load.target else VALUE
        self._directives = list(directives_of(text, code))
        if not load.architecture:
            return
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        for choice in Choice.in_text(text, code, load.architecture):
            self.edits.append(self._directives_behind(choice.end, f"#define {choice.mark}"))
            self.both |= self._lines(choice.start, choice.end)
        if load.device & set(_WORD.findall(code)):
            self._find()

    @cached_property
    def plain(self) -> str:
        """The code with spaces for directives."""
        return without(self._directives, self._code)

    def in_condition(self, position: int) -> bool:
        """Whether it depends on an #if."""
        words = [it.word for it in self._directives if it.start < position]
        return words.count("if") > words.count("endif")

    @cached_property
    def bodies(self) -> list[tuple[int, list[int], int]]:
        """Of each device function: where it is said to be one, where its body has been opened (at
        several places if branches of #if each open it), and where it has been closed."""
        return list(self._bodies())

    def _find(self) -> None:
        bodies = self.bodies
        groups: list[tuple[int, int]] = []
        for start, end in sorted(self._groups(bodies)):
            if not groups or start > groups[-1][1]:  # else it lies within that one
                groups.append((start, end))
        for start, end in groups:
            self._define(start, end)
        for function, opened, end in bodies:
            body = self._code[opened[0] : end]
            speaks = not self._load.architecture.isdisjoint(_WORD.findall(body))
            includes = re.search(r"^[ \t]*#[ \t]*include\b", body, re.MULTILINE)
            in_group = any(start <= function < stop for start, stop in groups)
            if (speaks or includes) and not in_group:
                begins, ends = self._switches(body)
                self.edits += [self._directives_at(start, begins) for start in opened]
                self.edits.append(self._directives_at(end - 1, ends))
                self.lines |= self._lines(opened[0], end)
        for directive in self._directives:
            if directive.word == "define":
                self._in_macro(directive)

    def _define(self, start: int, end: int) -> None:
        """Define it from the line that begins at `start` to the one that ends at `end`."""
        begins, ends = self._switches(self._code[start:end])
        self.edits.append((start, start, f"{begins}\n#line {self._line(start)}\n"))
        self.edits.append(self._directives_behind(end, ends))
        self.lines |= self._lines(start, end)

    def _switches(self, code: str) -> tuple[str, str]:
        """The directives before and behind a code of the device."""
        words = _WORD.findall(code)
        choices = self._load.choices_for(words)
        again = [*(c.forgotten() for c in choices), *(c.again() for c in choices)]
        return (
            "\n".join([f"#define {ARCHITECTURE} {self.value}", *again]),
            "\n".join([f"#undef {ARCHITECTURE}", *again]),
        )

    def _directives_at(self, position: int, directives: str) -> tuple[int, int, str]:
        """Directives within a line; what follows keeps its line and its column."""
        line_start = self._code.rfind("\n", 0, position) + 1
        pad = spaces(self._text[line_start:position])
        return position, position, f"\n{directives}\n#line {self._line(position)}\n{pad}"

    def _directives_behind(self, end: int, directives: str) -> tuple[int, int, str]:
        """Directives after the line that ends there."""
        return end, end, f"\n{directives}\n#line {self._line(end)}\n"

    def _line(self, position: int) -> int:
        return bisect_left(self._line_ends, position) + 1

    def _lines(self, start: int, end: int) -> set[int]:
        return set(range(self._line(start), self._line(end) + 1))

    def _in_macro(self, directive: Directive) -> None:
        """A function that a macro writes: no directive may stand in it, so the value does."""
        words = set(_WORD.findall(self._code[directive.start : directive.end]))
        name = _DEFINE.match(self._text, directive.start)
        if not (name and words & self._load.device and ARCHITECTURE in words):
            return
        for word in re.finditer(rf"\b{ARCHITECTURE}\b", self._code[name.start(3) : directive.end]):
            start = name.start(3) + word.start()
            self.edits.append((start, start + len(word[0]), self.value))

    def _bodies(self) -> Iterator[tuple[int, list[int], int]]:
        words = "|".join(map(re.escape, sorted(self._load.device)))
        reached = 0
        for word in re.finditer(rf"\b(?:{words})\b", self.plain):
            if word.start() < reached:
                continue
            opening = body_of(self.plain, word.end())
            if opening is not None:
                opened, reached = self._closed(opening)
                yield word.start(), opened, reached

    def _closed(self, opening: int) -> tuple[list[int], int]:
        """Where the brace at `opening`, and those in its place in other branches of #if, have been
        passed, and where they have been closed."""
        inside = [d for d in self._directives if d.start > opening]
        opened, depth, before, position = [opening + 1], 1, [], opening + 1
        brace = re.compile(r"[{}]")
        while True:
            found = brace.search(self.plain, position)
            while inside and (found is None or inside[0].start < found.start()):
                word = inside.pop(0).word
                if word == "if":
                    before.append(depth)
                elif word in ("elif", "else"):
                    depth = before[-1] if before else 0
                elif word == "endif" and before:
                    before.pop()
            if found is None:
                return opened, len(self.plain)
            position = found.end()
            if found[0] == "{":
                depth += 1
                if depth == 1:
                    opened.append(position)
            else:
                depth -= 1
                if depth <= 0:
                    return opened, position

    def _groups(self, bodies: list[tuple[int, list[int], int]]) -> Iterator[tuple[int, int]]:
        """Each #if to its #endif that asks for the architecture and holds device functions alone.

        The host's compilation sees nothing of those, so nvcc takes the branch for the device.
        """
        waiting: list[tuple[int, bool]] = []
        for directive in self._directives:
            asks = self._load.architecture & set(
                _WORD.findall(self._code[directive.start : directive.end])
            )
            if directive.word == "if":
                waiting.append((directive.start, bool(asks)))
            elif directive.word == "elif" and waiting and asks:
                waiting[-1] = waiting[-1][0], True
            elif directive.word == "endif" and waiting:
                start, asked = waiting.pop()
                end = directive.end
                if not asked or any(function < start < stop for function, _, stop in bodies):
                    continue
                within = [(f, stop) for f, _, stop in bodies if start < f and stop <= end]
                alone = within and "{" not in self._without(within, start, end)
                if alone and not in_function(self.plain, start, self._directives):
                    yield start, end

    def _without(self, spans: list[tuple[int, int]], start: int, end: int) -> str:
        rest = []
        for first, last in spans:
            rest.append(self.plain[start:first])
            start = last
        return "".join(rest) + self.plain[start:end]


def variables(text: str, code: str, load: Load, is_header: bool) -> Iterator[tuple[int, int, str]]:
    """Edits: the variables of the device are each .cu file's own where a load has several.

    nvcc gives each file a copy of a header's, too. Here the templates that use them are the same
    for all files, and so are they.
    """
    if not load.several or not re.search(_VARIABLE, code):
        return
    directives = list(directives_of(text, code))
    plain = without(directives, code)
    own = 'inline __attribute__((visibility("hidden"))) ' if is_header else "static "
    reached = 0
    for word in re.finditer(_VARIABLE, plain):
        if word.start() < reached or in_function(plain, word.start(), directives):
            continue
        before = re.split(r"[;{}]", plain[: word.start()][-400:])[-1]
        behind = re.sub(
            r"\b(?:__align__|alignas|__attribute__|decltype)\s*\((?:[^()]|\([^()]*\))*\)",
            lambda match: " " * len(match[0]),
            plain[word.end() : word.end() + 1000],
        )
        end = re.search(r"[;=({]", behind)
        if end is None or end[0] == "(" or re.search(r"\b(?:using|typedef|template)\b", before):
            continue
        reached = word.end() + end.end()
        name = re.search(r"(\w+)\s*(?:\[[^;=]*)?\Z", behind[: end.start()])
        declared = before + behind[: end.start()]
        kept = re.search(r"\b(?:static|extern|inline|constexpr|friend)\b", declared)
        if name and not kept and name[1] not in load.external:
            yield word.start(), word.start(), own


_STEP = re.compile(r"::|\boperator\s*(?:\(\s*\)|[^\s\w(]+)|[=!<>]=|[(){};:=]")


def body_of(plain: str, position: int) -> int | None:
    """The brace that opens the body of the function which is declared from there on; None where it
    is only declared, or is no function."""
    parameters = initializers = False
    while step := _STEP.search(plain, position):
        mark, position = step[0], step.end()
        if mark == "(":
            parameters = True
            position = closing(plain, step.start()) or len(plain)
        elif mark == ":" and parameters:
            initializers = True
        elif mark == "{" and initializers and re.search(r"[\w>]\s*\Z", plain[: step.start()][-99:]):
            position = closing(plain, step.start()) or len(plain)  # of a member
        elif mark == "{":
            return step.start() if parameters else None
        elif mark in (")", "}", ";", "=", ":"):
            return None
    return None
