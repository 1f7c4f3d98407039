"""Tells code in a C++ text from comments, strings and character literals.

    f('"', 1'000);  // it is "f"      a text
    f('"', 1'000);                    without_comments
    f(   , 1'000);                    blank

The project has no other C++ scanner: everything that searches for code searches its output.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

# Tokens that are not code: comments, raw strings, strings, characters and continued lines; and
# numbers with digit separators, which open no character. All begin with one of a few characters, so
# that the search skips the others quickly; the tokens before one decide what it is.
_TOKEN = r"""(?xs)
    [/"'\\0-9]
    (?: (?<=/)/[^\\\n]*(?:\\(?:\r?\n)?[^\\\n]*)*
      | (?<=/)\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/)?
      | (?:(?<=\bR")|(?<=\b[uUL]R")|(?<=\bu8R"))(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"
      | (?<=")[^"\\\n]*(?:\\(?:\r\n|.)[^"\\\n]*)*"
      | (?<=')[^'\\\n]*(?:\\(?:\r\n|.)[^'\\\n]*)*'
      | (?<=\\)\r?\n
      | (?<=[0-9])(?<!\w.)[\w.]*(?:'[\w.]+)+
    )
"""  # text, until it is used: compiling it would cost every import


def blank(text: str) -> str:
    """`text` with spaces for all that is not code; offsets and lines stay the same."""
    return re.sub(_TOKEN, lambda token: _blank(token[0], kept="0123456789"), text)


def without_comments(text: str) -> str:
    """`text` with spaces for its comments; offsets and lines stay the same."""
    return re.sub(_TOKEN, lambda token: _blank(token[0], kept="0123456789\"'\\"), text)


def _blank(token: str, kept: str) -> str:
    """Spaces for a token, unless it begins with a character that is kept."""
    if token[0] in kept:
        return token
    return re.sub(r"[^\n]+", lambda line: " " * len(line[0]), token)


def closing(code: str, opening: int) -> int | None:
    """The offset after the bracket that closes the ( or { at `opening`; None if none does."""
    depth, pair = 0, r"[()]" if code[opening] == "(" else r"[{}]"
    for bracket in re.compile(pair).finditer(code, opening):
        depth += 1 if bracket[0] in "({" else -1
        if depth == 0:
            return bracket.end()
    return None


def split(text: str, brackets: str = "()[]{}") -> list[str]:
    """The stripped parts of a text between commas that are not in brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        if letter in brackets:
            depth += -1 if brackets.index(letter) % 2 else 1
        elif letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()]


class Declared(NamedTuple):
    """A declared variable: type name[extent]... = value. name_at, value_at: offsets."""

    type: str
    name: str
    name_at: int
    extents: list[str]
    value_at: int | None


_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_VARIABLE = re.compile(r"(\w+)\s*((?:\[[^;]*\]\s*)?)$")


def declared(code: str, qualifier: str) -> Iterator[Declared]:
    """The variables that blanked code declares after a qualifier such as __shared__, in order."""
    for word in re.finditer(rf"\b{qualifier}\b", code):
        type_ = None
        for begin, value, end in _declarators(code, word.end()):
            said = _VARIABLE.search(code[begin : end if value is None else value])
            if not said:
                break
            if type_ is None:
                type_ = code[begin : begin + said.start()].strip()
            extents = re.findall(r"\[([^][]*)\]", said[2])
            yield Declared(type_, said[1], begin + said.start(), extents, value)


def _declarators(code: str, begin: int) -> list[tuple[int, int | None, int]]:
    """Offsets of each declarator's begin, value and end; nothing if the text is no declaration."""
    found: list[tuple[int, int | None, int]] = []
    open_: list[str] = []
    value = None
    for at in range(begin, len(code)):
        letter = code[at]
        if open_ and letter == open_[-1]:
            open_.pop()
        elif letter in "([{" or (letter == "<" and value is None and open_ in ([], [">"])):
            is_type = re.search(r"\b(?:struct|union|class)\b[\w\s]*$", code[begin:at])
            if letter == "{" and not open_ and value is None and not is_type:
                value = at
            open_.append(_PAIRS[letter])
        elif open_:
            if letter in ")]}" or (letter == ";" and open_[-1] == ">"):
                return []
        elif letter == "=" and value is None:
            value = at
        elif letter in ",;":
            found.append((begin, value, at))
            begin, value = at + 1, None
            if letter == ";":
                return found
        elif letter in ")]}":
            return []
    return []


class Lines:
    """Finds the line (from 1) of a position in a text."""

    def __init__(self, text: str):
        self._ends = [end.start() for end in re.finditer("\n", text)]

    def of(self, position: int) -> int:
        return bisect_left(self._ends, position) + 1
