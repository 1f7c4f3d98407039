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
from dataclasses import dataclass
from typing import NamedTuple

from simulator.scan import blank, closing

ARCHITECTURE = "__CUDA_ARCH__"
VALUE = "900"  # of compute capability 9.0, as cudaGetDeviceProperties says

_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\r?\n)*[^\n]*", re.MULTILINE)
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?(.*)", re.DOTALL)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_VARIABLE = r"\b__(?:device|constant|managed)__\b"
_EXTERNAL = re.compile(rf"\bextern\b[^;(){{}}]*{_VARIABLE}[^;(){{}}]*?(\w+)\s*(?:\[[^;]*)?;")


@dataclass(frozen=True)
class Load:
    """What is known of all the files that are compiled together.

    device: the macros that mark a function as the device's, as `__device__` does.
    architecture: those that depend on `__CUDA_ARCH__`; empty where no file speaks of it.
    several: whether several .cu files are compiled.
    external: the variables of the device that one file declares for another to define.
    """

    device: frozenset[str] = frozenset({"__device__", "__global__"})
    architecture: frozenset[str] = frozenset()
    several: bool = False
    external: frozenset[str] = frozenset()

    @classmethod
    def of(cls, texts: Iterable[str], several: bool = False) -> Load:
        texts = list(texts)
        declared = (_EXTERNAL.findall(blank(text)) for text in texts if several)
        external = frozenset(name for names in declared for name in names)
        if not any(ARCHITECTURE in text for text in texts):
            return cls(several=several, external=external)
        replaced: dict[str, set[str]] = {}
        for text in texts:
            if "define" in text:
                for directive in _DIRECTIVE.finditer(text):
                    if definition := _DEFINE.match(directive[0]):
                        words = replaced.setdefault(definition[1], set())
                        words.update(_WORD.findall(definition[3]))
        device = _that_lead_to(cls.device, replaced)
        return cls(device, _that_lead_to({ARCHITECTURE}, replaced), several, external)


def _that_lead_to(words: Iterable[str], replaced: dict[str, set[str]]) -> frozenset[str]:
    """These words, and the macros that are replaced by one of them, or by such a macro."""
    found = set(words)
    while more := {name for name, by in replaced.items() if name not in found and by & found}:
        found |= more
    return frozenset(found)


class _Directive(NamedTuple):
    start: int
    end: int
    word: str  # "if" and "endif", "else" and "elif"; others as they are


class DeviceCode:
    """The device code of one text in which `__CUDA_ARCH__` is to be known.

    edits: what defines it there: from, to, what to put there.
    lines: those (from 1) on which it is defined.
    """

    def __init__(self, text: str, code: str, load: Load):
        self.edits: list[tuple[int, int, str]] = []
        self.lines: set[int] = set()
        self._text, self._code, self._load = text, code, load
        if not load.architecture or not load.device & set(_WORD.findall(code)):
            return
        self._directives = list(_directives(text, code))
        self._plain = _without(self._directives, code)
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._find()

    def _find(self) -> None:
        bodies = list(self._bodies())
        groups: list[tuple[int, int]] = []
        for start, end in sorted(self._groups(bodies)):
            if not groups or start > groups[-1][1]:  # else it lies within that one
                groups.append((start, end))
        for start, end in groups:
            self._define(start, end)
        for function, opened, end in bodies:
            speaks = self._load.architecture & set(_WORD.findall(self._code[opened[0] : end]))
            includes = re.search(r"^[ \t]*#[ \t]*include\b", self._code[opened[0] : end], re.M)
            in_group = any(start <= function < stop for start, stop in groups)
            if (speaks or includes) and not in_group:
                for start in opened:
                    self.edits.append(self._directive_at(start, f"#define {ARCHITECTURE} {VALUE}"))
                self.edits.append(self._directive_at(end - 1, f"#undef {ARCHITECTURE}"))
                self._count_lines(opened[0], end)
        for directive in self._directives:
            if directive.word == "define":
                self._in_macro(directive)

    def _define(self, start: int, end: int) -> None:
        """Define it from the line that begins at `start` to the one that ends at `end`."""
        first, after = self._line(start), self._line(end) + 1
        defined = f"#define {ARCHITECTURE} {VALUE}\n#line {first}\n"
        self.edits.append((start, start, defined))
        self.edits.append((end, end, f"\n#undef {ARCHITECTURE}\n#line {after - 1}\n"))
        self._count_lines(start, end)

    def _directive_at(self, position: int, directive: str) -> tuple[int, int, str]:
        """A directive within a line; what follows keeps its line and its column."""
        line_start = self._code.rfind("\n", 0, position) + 1
        pad = _spaces(self._text[line_start:position])
        return position, position, f"\n{directive}\n#line {self._line(position)}\n{pad}"

    def _line(self, position: int) -> int:
        return bisect_left(self._line_ends, position) + 1

    def _count_lines(self, start: int, end: int) -> None:
        self.lines.update(range(self._line(start), self._line(end) + 1))

    def _in_macro(self, directive: _Directive) -> None:
        """A function that a macro writes: no directive may stand in it, so the value does."""
        words = set(_WORD.findall(self._code[directive.start : directive.end]))
        name = _DEFINE.match(self._text, directive.start)
        if not (name and words & self._load.device and ARCHITECTURE in words):
            return
        for word in re.finditer(rf"\b{ARCHITECTURE}\b", self._code[name.start(3) : directive.end]):
            start = name.start(3) + word.start()
            self.edits.append((start, start + len(word[0]), VALUE))

    def _bodies(self) -> Iterator[tuple[int, list[int], int]]:
        """Of each device function: where it is said to be one, where its body has been opened (at
        several places if branches of #if each open it), and where it has been closed."""
        words = "|".join(map(re.escape, sorted(self._load.device)))
        reached = 0
        for word in re.finditer(rf"\b(?:{words})\b", self._plain):
            if word.start() < reached:
                continue
            opening = _body(self._plain, word.end())
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
            found = brace.search(self._plain, position)
            while inside and (found is None or inside[0].start < found.start()):
                word = inside.pop(0).word
                if word == "if":
                    before.append(depth)
                elif word in ("elif", "else"):
                    depth = before[-1] if before else 0
                elif word == "endif" and before:
                    before.pop()
            if found is None:
                return opened, len(self._plain)
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
                if alone and not _in_function(self._plain, start):
                    yield start, end

    def _without(self, spans: list[tuple[int, int]], start: int, end: int) -> str:
        rest = []
        for first, last in spans:
            rest.append(self._plain[start:first])
            start = last
        return "".join(rest) + self._plain[start:end]


def variables(text: str, code: str, load: Load, is_header: bool) -> Iterator[tuple[int, int, str]]:
    """Edits: the variables of the device are each .cu file's own where a load has several.

    nvcc gives each file a copy of a header's, too. Here the templates that use them are the same
    for all files, and so are they.
    """
    if not load.several or not re.search(_VARIABLE, code):
        return
    plain = _without(list(_directives(text, code)), code)
    own = 'inline __attribute__((visibility("hidden"))) ' if is_header else "static "
    reached = 0
    for word in re.finditer(_VARIABLE, plain):
        if word.start() < reached or _in_function(plain, word.start()):
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


def _in_function(plain: str, position: int) -> bool:
    """Whether a brace is open there that is no namespace's and no class's."""
    opened: list[bool] = []
    for brace in re.finditer(r"[{}]", plain[:position]):
        if brace[0] == "{":
            before = re.split(r"[;{}]", plain[: brace.start()][-400:])[-1]
            scope = re.search(r"\b(?:namespace|class|struct|union|extern)\b", before)
            opened.append(not scope or before.rstrip().endswith(")"))
        elif opened:
            opened.pop()
    return any(opened)


def _without(directives: list[_Directive], code: str) -> str:
    """`code` with spaces for directives, so that what stands in a #define opens no function."""
    parts, end = [], 0
    for directive in directives:
        parts += code[end : directive.start], _spaces(code[directive.start : directive.end])
        end = directive.end
    return "".join(parts) + code[end:]


def _spaces(text: str) -> str:
    return re.sub(r"[^\n\t]", " ", text)


def _directives(text: str, code: str) -> Iterator[_Directive]:
    for match in _DIRECTIVE.finditer(text):
        mark = match.start() + match[0].index("#")
        if code[mark] != "#":
            continue  # in a comment or a string
        word = re.match(r"#[ \t]*(\w*)", match[0][mark - match.start() :])[1]
        yield _Directive(match.start(), match.end(), re.sub(r"^ifn?def$", "if", word))


_STEP = re.compile(r"::|\boperator\s*(?:\(\s*\)|[^\s\w(]+)|[=!<>]=|[(){};:=]")


def _body(plain: str, position: int) -> int | None:
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
