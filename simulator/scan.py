"""What of a C++ text is code, and what is a comment, a string or a character.

    f('"', 1'000);  // it is "f"      a text
    f('"', 1'000);                    without_comments
    f(   , 1'000);                    blank

The project has no other scanner of C++: who looks for code in a text looks in what this leaves.
"""

from __future__ import annotations

import re
from bisect import bisect_left

# What is not code: a comment, a raw string, a string, a character, a continued line. Beside them a
# number with digit separators, which open no character. All begin with one of a few characters, so
# that the search passes over the others at once; what a token is follows from those before it.
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
    """`text` with spaces for all that is not code; every offset and line stays."""
    return re.sub(_TOKEN, lambda token: _blank(token[0], kept="0123456789"), text)


def without_comments(text: str) -> str:
    """`text` with spaces for its comments; every offset and line stays."""
    return re.sub(_TOKEN, lambda token: _blank(token[0], kept="0123456789\"'\\"), text)


def _blank(token: str, kept: str) -> str:
    """Spaces for a token, unless it begins with a character that is kept."""
    if token[0] in kept:
        return token
    return re.sub(r"[^\n]+", lambda line: " " * len(line[0]), token)


def closing(code: str, opening: int) -> int | None:
    """Where the ( or { at an offset of blanked code has been closed; None where it is not."""
    depth, pair = 0, r"[()]" if code[opening] == "(" else r"[{}]"
    for bracket in re.compile(pair).finditer(code, opening):
        depth += 1 if bracket[0] in "({" else -1
        if depth == 0:
            return bracket.end()
    return None


class Lines:
    """Which line of a text, from 1, a position is on."""

    def __init__(self, text: str):
        self._ends = [end.start() for end in re.finditer("\n", text)]

    def of(self, position: int) -> int:
        return bisect_left(self._ends, position) + 1
