"""Types of template parameters without `typename`, which nvcc accepts in device code.

In a template, `sizeof(T::tile)` and `load<T::tile>()` are parsed before T is known. g++ parses
`T::tile` as a value unless `typename` precedes it, and fails if it is a type in T. In device
functions nvcc finds this out by itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from simulator.scan import blank
from simulator.scopes import Scopes
from toolchain.sources import labelled

# By file, the lines that lack `typename`, and the names that it precedes.
Meant = dict[Path, set[tuple[int, str]]]

_SAID = re.compile(
    r"(?m)^(?P<file>/[^:\n]*):(?P<line>\d+):\d+: note: "
    r"say \u2018typename (?P<name>[^\u2019]+)\u2019"
)


def meant(output: str) -> Meant:
    """The places where a compiler's output asks for `typename`."""
    found: Meant = defaultdict(set)
    for said in _SAID.finditer(output):
        found[labelled(said["file"])].add((int(said["line"]), said["name"]))
    return found


def with_typenames(text: str, places: set[tuple[int, str]]) -> str:
    """The text with `typename` at these places, if they are in device code."""
    plain = blank(text)
    scopes = Scopes(plain)
    starts = [0, *(end.end() for end in re.finditer("\n", text)), len(text)]
    missing: set[int] = set()
    for line, name in places:
        spaced = r"\s*".join(map(re.escape, re.findall(r"\w+|\S", name)))
        of_name = re.compile(rf"(?<![\w:])(?<!typename )(?:::)?{spaced}\b(?!\s*::)")
        for found in of_name.finditer(plain, starts[line - 1], starts[line]):
            if any(re.search(r"__(?:device|global)__", h) for h in scopes.heads(found.start())):
                missing.add(found.start())
    pieces, done = [], 0
    for at in sorted(missing):
        pieces += [text[done:at], "typename "]
        done = at
    return "".join([*pieces, text[done:]])
