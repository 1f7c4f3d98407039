"""Finds device code: the bodies of `__global__` and `__device__` functions.

nvcc compiles a file once for the host, without `__CUDA_ARCH__`, and once for the device, with it.
The simulator compiles it once, so the macro is defined where device code begins, and no longer
where it ends:

    __device__ float f(float x) {
    #define __CUDA_ARCH__ 900
    ...
    #undef __CUDA_ARCH__
    }

This needs the macros of all files that are compiled together: `Load`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

from simulator.architectures import Architecture
from simulator.directives import (
    ARCHITECTURE,
    DIRECTIVE,
    VALUE,
    Directive,
    directives_of,
    spaces,
    without,
    without_pragmas_in_macros,
)
from simulator.host_only import functions_of_device
from simulator.needs import launches_by_address
from simulator.ptx import Macros
from simulator.ptx.macros import that_lead_to
from simulator.scan import Lines, blank, closing, without_comments
from simulator.scopes import Functions

_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?(.*)", re.DOTALL)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_VARIABLE = r"\b__(?:device|constant|managed)__\b"
_EXTERNAL = re.compile(rf"\bextern\b[^;(){{}}]*{_VARIABLE}[^;(){{}}]*?(\w+)\s*(?:\[[^;]*)?;")


class Choice(NamedTuple):
    """An #if outside of functions that asks for the architecture and defines macros, nothing else.

    The host and the device get different macros from it, so the #if is repeated where device code
    begins and where it ends.

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
        """The macro that records that this #if was compiled; another around it may leave it out."""
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
        functions = Functions(plain, directives)
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
                if not asked:
                    continue
                start, end = directives[first].start, directive.end
                within = directives[first:index]
                names = frozenset(
                    _DEFINE.match(text, each.start)[1] for each in within if each.word == "define"
                )
                alone = not plain[start:end].strip() and all(d.word != "include" for d in within)
                if names and alone and not functions.hold(start):
                    while found and found[-1].start >= start:  # within this one
                        found.pop()
                    found.append(cls(names, bare[start:end], start, end))
        return found


@dataclass(frozen=True)
class Load:
    """What is known about all files that are compiled together.

    device: the macros that mark a function as the device's, as `__device__` does.
    architecture: the macros that depend on `__CUDA_ARCH__`; empty if no file mentions it.
    choices: the #ifs that define macros in one way or another by the architecture.
    several: whether several .cu files are compiled.
    external: the variables of the device that one file declares for another to define.
    of_device: names that may belong to device functions.
    macros: the macros that compose PTX.
    by_address: whether kernels are launched by their addresses.
    target: the architecture that the build is for; None is compute capability 9.0 with the
        instructions of all others.
    """

    device: frozenset[str] = frozenset({"__device__", "__global__"})
    architecture: frozenset[str] = frozenset()
    choices: tuple[Choice, ...] = ()
    several: bool = False
    external: frozenset[str] = frozenset()
    of_device: frozenset[str] = frozenset()
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
            of_device=functions_of_device(texts),
            macros=macros,
            by_address=any(map(launches_by_address, texts)),
            target=target,
        )
        if not any(ARCHITECTURE in text for text in texts):
            return plain
        leading = _leading(texts)
        codes = [(text, blank(text)) for text in texts if "#" in text]
        architecture, found = that_lead_to({ARCHITECTURE}, leading), -1
        while found != len(architecture):  # a choice may depend on another
            found = len(architecture)
            choices = [c for text, code in codes for c in Choice.in_text(text, code, architecture)]
            chosen = (name for choice in choices for name in choice.names)
            architecture = that_lead_to({*architecture, *chosen}, leading)
        choices = [choice._replace(reach=that_lead_to(choice.names, leading)) for choice in choices]
        device = that_lead_to(cls.device, leading)
        return replace(plain, device=device, architecture=architecture, choices=tuple(choices))

    @classmethod
    def marks_of_device(cls, texts: Iterable[str]) -> frozenset[str]:
        """As `device`, also where no file mentions `__CUDA_ARCH__`."""
        return that_lead_to(cls.device, _leading(texts))

    def choices_for(self, words: Iterable[str]) -> list[Choice]:
        """The choices that decide what these words stand for; dependencies come first."""
        found: list[int] = []

        def find(index: int) -> None:
            if index not in found and index not in waiting:
                waiting.append(index)
                for asked in self._asked[index]:
                    find(asked)
                found.append(index)

        waiting: list[int] = []
        for index in sorted({i for word in set(words) for i in self._reached_by.get(word, ())}):
            find(index)
        return [self.choices[index] for index in found]

    @cached_property
    def _reached_by(self) -> dict[str, list[int]]:
        """For each word, the indices of the choices that decide what it stands for."""
        found: dict[str, list[int]] = {}
        for index, choice in enumerate(self.choices):
            for word in choice.reach:
                found.setdefault(word, []).append(index)
        return found

    @cached_property
    def _asked(self) -> list[list[int]]:
        """For each choice, the indices of the others that define what it asks for."""
        defined: dict[str, list[int]] = {}
        for index, choice in enumerate(self.choices):
            for name in choice.names:
                defined.setdefault(name, []).append(index)
        words = [frozenset(_WORD.findall(choice.text)) - choice.names for choice in self.choices]
        return [sorted({i for word in mine for i in defined.get(word, ())}) for mine in words]


def _leading(texts: Iterable[str]) -> dict[str, set[str]]:
    """For each word, the macros whose replacement contains it."""
    found: dict[str, set[str]] = {}
    for text in texts:
        if "define" in text:
            for directive in DIRECTIVE.finditer(text):
                if definition := _DEFINE.match(directive[0]):
                    for word in _WORD.findall(definition[3]):
                        found.setdefault(word, set()).add(definition[1])
    return found


class DeviceCode:
    """The device code of one text in which `__CUDA_ARCH__` is to be known.

    edits: (from, to, replacement) that define the macro there.
    lines: the lines (from 1) on which it is defined.
    both: the lines that the host and the device read.
    value: the macro's value.
    """

    def __init__(self, text: str, code: str, load: Load):
        self.edits: list[tuple[int, int, str]] = []
        self.lines: set[int] = set()
        self.both: set[int] = set()
        self._text, self._code, self._load = text, code, load
        self.value = str(load.target.number) if load.target else VALUE
        self._directives = list(directives_of(text, code))
        self._lines_of_text = Lines(text)
        if not load.architecture:
            return
        for choice in Choice.in_text(text, code, load.architecture):
            self.edits.append(self._directives_behind(choice.end, f"#define {choice.mark}"))
            self.both |= self._lines(choice.start, choice.end)
        if load.device & set(_WORD.findall(code)):
            self._find()

    @cached_property
    def plain(self) -> str:
        """The code with spaces for directives."""
        return without(self._directives, self._code)

    @cached_property
    def _starts(self) -> list[int]:
        return [directive.start for directive in self._directives]

    @cached_property
    def _depths(self) -> list[int]:
        """How many #ifs are open before each directive, and after the last one."""
        steps = ({"if": 1, "endif": -1}.get(each.word, 0) for each in self._directives)
        return list(accumulate(steps, initial=0))

    def in_condition(self, position: int) -> bool:
        """Whether a position is within an #if."""
        return self._depths[bisect_left(self._starts, position)] > 0

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
            before = bisect_right(groups, (function, len(self._code))) - 1
            in_group = before >= 0 and function < groups[before][1]
            if (speaks or includes) and not in_group:
                begins, ends = self._switches(body)
                self.edits += [self._directives_at(start, begins) for start in opened]
                self.edits.append(self._directives_at(end - 1, ends))
                self.lines |= self._lines(opened[0], end)
        for directive in self._directives:
            if directive.word == "define":
                self._in_macro(directive)

    def _define(self, start: int, end: int) -> None:
        """Define the macro from the line that begins at `start` to the one that ends at `end`."""
        begins, ends = self._switches(self._code[start:end])
        self.edits.append((start, start, f"{begins}\n#line {self.line(start)}\n"))
        self.edits.append(self._directives_behind(end, ends))
        self.lines |= self._lines(start, end)

    def _switches(self, code: str) -> tuple[str, str]:
        """The directives before and after a piece of device code."""
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
        return position, position, f"\n{directives}\n#line {self.line(position)}\n{pad}"

    def _directives_behind(self, end: int, directives: str) -> tuple[int, int, str]:
        """Directives after the line that ends there."""
        return end, end, f"\n{directives}\n#line {self.line(end)}\n"

    def line(self, position: int) -> int:
        """The line, from 1, that a position is on."""
        return self._lines_of_text.of(position)

    def _lines(self, start: int, end: int) -> set[int]:
        return set(range(self.line(start), self.line(end) + 1))

    def _in_macro(self, directive: Directive) -> None:
        """In a function that a macro defines, where no directive may be: write the value itself."""
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
        following = bisect_right(self._starts, opening)
        opened, depth, before, position = [opening + 1], 1, [], opening + 1
        brace = re.compile(r"[{}]")
        while True:
            found = brace.search(self.plain, position)
            reach = len(self.plain) if found is None else found.start()
            while following < len(self._starts) and self._starts[following] < reach:
                word = self._directives[following].word
                following += 1
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
        """Each #if (to its #endif) that asks for the architecture and holds only device functions.

        The host's compilation has no use for them, so the branch of the device is taken.
        """
        waiting: list[tuple[int, bool]] = []
        functions = Functions(self.plain, self._directives)
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
                first = bisect_left(bodies, start, key=lambda body: body[0])
                if not asked or (first and start < bodies[first - 1][2]):
                    continue
                behind = bisect_right(bodies, end, key=lambda body: body[2])
                within = [(function, stop) for function, _, stop in bodies[first:behind]]
                alone = within and "{" not in self._without(within, start, end)
                if alone and not functions.hold(start):
                    yield start, end

    def _without(self, spans: list[tuple[int, int]], start: int, end: int) -> str:
        rest = []
        for first, last in spans:
            rest.append(self.plain[start:first])
            start = last
        return "".join(rest) + self.plain[start:end]


def variables(text: str, code: str, load: Load, is_header: bool) -> Iterator[tuple[int, int, str]]:
    """Edits that give each .cu file its own device variables, if a load has several files.

    nvcc also gives each file its own copy of a header's variables. Here all files share them,
    because they share the templates that use them.
    """
    if not load.several or not re.search(_VARIABLE, code):
        return
    directives = list(directives_of(text, code))
    plain = without(directives, code)
    functions = Functions(plain, directives)
    own = 'inline __attribute__((visibility("hidden"))) ' if is_header else "static "
    reached = 0
    for word in re.finditer(_VARIABLE, plain):
        if word.start() < reached or functions.hold(word.start()):
            continue
        before = re.split(r"[;{}]", plain[max(0, word.start() - 400) : word.start()])[-1]
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


def _ends_in_name(plain: str, position: int) -> bool:
    before = plain[max(0, position - 99) : position]
    return re.search(r"[\w>]\s*\Z", before) is not None


def body_of(plain: str, position: int) -> int | None:
    """The brace that opens the body of the function declared at `position`; None where it
    is only declared, or is no function."""
    parameters = initializers = False
    while step := _STEP.search(plain, position):
        mark, position = step[0], step.end()
        if mark == "(":
            parameters = True
            position = closing(plain, step.start()) or len(plain)
        elif mark == ":" and parameters:
            initializers = True
        elif mark == "{" and initializers and _ends_in_name(plain, step.start()):
            position = closing(plain, step.start()) or len(plain)  # of a member
        elif mark == "{":
            return step.start() if parameters else None
        elif mark in (")", "}", ";", "=", ":"):
            return None
    return None
