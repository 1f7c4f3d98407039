"""Variables that outlast a call, found in a source whose comments and strings are blank."""

from __future__ import annotations

import re

_NAMESPACE = re.compile(r"\b(?:inline\s+)?namespace\b[\w\s:]*$")
_DECLARES = re.compile(
    r"(?:using|typedef|namespace|template|struct|class|enum|extern|static_assert)\b"
)


def variables(blank: str) -> list[tuple[str, int]]:
    """Non-const host and device variables outside every function."""
    found, depth, begin = [], 0, 0
    for i, letter in enumerate(blank):
        if letter == "{" and depth == 0 and _NAMESPACE.search(blank[begin:i]):
            begin = i + 1  # the namespace's contents are outside functions, too
        elif letter == "}" and depth == 0:
            begin = i + 1
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            begin = i + 1 if depth == 0 else begin
        elif letter == ";" and depth == 0:
            said = re.sub(r"^\s*#.*$", "", blank[begin:i], flags=re.M)
            at = i
            begin = i + 1
            words = " ".join(said.split())
            if not words or "(" in words.partition("=")[0]:
                continue
            if _DECLARES.match(words) or is_fixed(words.partition("=")[0]):
                continue
            found.append((words, at))
    return found


def is_fixed(declared: str) -> bool:
    """Whether a variable cannot change: it is const itself, not only what it points to."""
    if re.search(r"\b(?:constexpr|__constant__)\b", declared):
        return True
    return bool(re.search(r"\bconst\b", declared[declared.rfind("*") + 1 :]))
