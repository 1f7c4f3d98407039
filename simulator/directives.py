"""Preprocessor directives of a C++ text, and the lines that they drop.

`code` is always a `text` whose comments and strings are blank (`simulator.scan.blank`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from simulator import conditions

ARCHITECTURE = "__CUDA_ARCH__"
VALUE = "900"  # compute capability 9.0, unless a build is for another

DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\r?\n)*[^\n]*", re.MULTILINE)


class Directive(NamedTuple):
    start: int
    end: int
    word: str  # "if" and "endif", "else" and "elif"; others as they are


_PRAGMA_IN_MACRO = re.compile(
    r"^(?P<macro>[ \t]*#[ \t]*define[ \t]+\w+[ \t]+)(?P<pragma>#[ \t]*pragma\b[^\n\\]*)$",
    re.MULTILINE,
)


def without_pragmas_in_macros(text: str) -> str:
    """`#define UNROLL #pragma unroll`, which nvcc takes, as `#define UNROLL` of the same length.

    In C++ a macro cannot produce a directive, and a C++ compiler has no use for this pragma.
    """
    return _PRAGMA_IN_MACRO.sub(lambda m: m["macro"] + " " * len(m["pragma"]), text)


def without(directives: list[Directive], code: str) -> str:
    """`code` with spaces for directives, so that a brace in a #define opens no function."""
    parts, end = [], 0
    for directive in directives:
        parts += code[end : directive.start], spaces(code[directive.start : directive.end])
        end = directive.end
    return "".join(parts) + code[end:]


def spaces(text: str) -> str:
    return re.sub(r"[^\n\t]", " ", text)


def directives_of(text: str, code: str) -> Iterator[Directive]:
    for match in DIRECTIVE.finditer(text):
        mark = match.start() + match[0].index("#")
        if code[mark] != "#":
            continue  # in a comment or a string
        word = re.match(r"#[ \t]*(\w*)", match[0][mark - match.start() :])[1]
        yield Directive(match.start(), match.end(), re.sub(r"^ifn?def$", "if", word))


# Macros known when the simulator's compiler reads a source: a value, or that one is not defined.
_ON_THE_HOST = {"PLAYGROUND_CUDA": "0", "__CUDACC__": "1", "__NVCC__": "1", "__CUDA_ARCH__": None}


def dropped_lines(code: str, device_lines: set[int], architecture: str = VALUE) -> set[int]:
    """Lines (from 1) in branches of `#if` that the macros above exclude on a CPU.

    architecture: what `__CUDA_ARCH__` is on the lines of the device.
    """
    on_the_device = {**_ON_THE_HOST, ARCHITECTURE: architecture}
    dropped: set[int] = set()
    branches: list[list[bool | None]] = []  # for each open #if: the verdicts so far; None: unknown
    for number, line in enumerate(code.split("\n"), 1):
        directive = re.match(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)", line)
        if directive is None:
            if any(_not_taken(verdicts) for verdicts in branches):
                dropped.add(number)
            continue
        word, condition = directive.groups()
        known = on_the_device if number in device_lines else _ON_THE_HOST
        if word in ("if", "ifdef", "ifndef"):
            prefix = {"if": "", "ifdef": "defined ", "ifndef": "! defined "}[word]
            branches.append([_verdict(prefix + condition, known)])
        elif branches and word == "elif":
            branches[-1].append(_verdict(condition, known))
        elif branches and word == "else":
            branches[-1].append(True)
        elif branches:
            branches.pop()
    return dropped


def _not_taken(verdicts: list[bool | None]) -> bool:
    return verdicts[-1] is False or any(verdicts[:-1])


def _verdict(condition: str, known: dict[str, str | None]) -> bool | None:
    """Whether a condition of #if holds for a CPU; None if that depends on unknown macros."""

    def is_defined(match: re.Match) -> str:
        return str(int(known[match[1]] is not None)) if match[1] in known else match[1]

    condition = re.sub(r"\bdefined\s*\(\s*(\w+)\s*\)", r"defined \1", condition)
    condition = re.sub(r"\bdefined\s+(?=(\w+))\1", is_defined, condition)
    for name, value in known.items():
        condition = re.sub(rf"\b{name}\b", value or "0", condition)
    value = conditions.value(condition)
    return None if value is None else value != 0
