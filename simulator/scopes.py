"""Finds the braces that are open at a place of a C++ text; it reads the braces once for all places.

Reading them for each `asm` statement would take time quadratic in the text's length.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property

from simulator.directives import Directive


class Scopes:
    """The braces of a `code` whose comments and strings are blank (`simulator.scan.blank`)."""

    def __init__(self, code: str):
        self._code = code

    @cached_property
    def _braces(self) -> tuple[list[int], list[int]]:
        """The offset of each brace, and the index of the innermost brace that is open after it,
        or -1."""
        starts: list[int] = []
        innermost: list[int] = []
        opened: list[int] = []
        for index, brace in enumerate(re.finditer(r"[{}]", self._code)):
            starts.append(brace.start())
            if brace[0] == "{":
                opened.append(index)
            elif opened:
                opened.pop()
            innermost.append(opened[-1] if opened else -1)
        return starts, innermost

    def heads(self, position: int) -> Iterator[str]:
        """The text before each brace that is open at a position, back to another brace or a
        semicolon; the innermost first."""
        starts, innermost = self._braces
        before = bisect_left(starts, position) - 1
        while before >= 0 and (brace := innermost[before]) >= 0:
            floor = starts[brace - 1] + 1 if brace else 0
            semicolon = self._code.rfind(";", floor, starts[brace])
            yield self._code[max(semicolon + 1, floor) : starts[brace]]
            before = brace - 1


class Functions:
    """The functions in a `plain` code without directives: places where a brace is open that belongs
    to no namespace and no class."""

    def __init__(self, plain: str, directives: list[Directive]):
        self._plain, self._directives = plain, directives

    @cached_property
    def _marks(self) -> tuple[list[int], list[bool]]:
        """The offset of each brace and directive, and whether a function is open after it."""
        starts: list[int] = []
        within: list[bool] = []
        opened: list[bool] = []
        before: list[list[bool]] = []  # each open #if: another branch opens its own
        marks = [(directive.start, directive.word) for directive in self._directives]
        marks += [(brace.start(), brace[0]) for brace in re.finditer(r"[{}]", self._plain)]
        for start, mark in sorted(marks):
            if mark == "{":
                declared = re.split(r"[;{}]", self._plain[max(0, start - 400) : start])[-1]
                scope = re.search(r"\b(?:namespace|class|struct|union|extern)\b", declared)
                opened.append(not scope or declared.rstrip().endswith(")"))
            elif mark == "}":
                opened = opened[:-1]
            elif mark == "if":
                before.append([*opened])
            elif mark in ("else", "elif") and before:
                opened = [*before[-1]]
            elif mark == "endif" and before:
                before.pop()
            starts.append(start)
            within.append(any(opened))
        return starts, within

    def hold(self, position: int) -> bool:
        starts, within = self._marks
        before = bisect_left(starts, position) - 1
        return before >= 0 and within[before]
