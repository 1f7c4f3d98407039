"""Names in template parameters without `typename` or `template`, which nvcc accepts in device code.

In a template, `load<T::tile>()` and `T::index<4>(i)` are parsed before T is known. g++ parses
`T::tile` as a value unless `typename` precedes it, and `T::index < 4 > (i)` as two comparisons
unless `template` stands before `index`; it fails if T has a type or a template of that name. In
device functions nvcc finds this out by itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from simulator.scan import blank
from simulator.scopes import Scopes
from toolchain.sources import labelled

# By file, the lines that lack a keyword, the keyword, and the name that it precedes ("": any).
Meant = dict[Path, set[tuple[int, str, str]]]

_FUNCTION = "\u2018<unresolved overloaded function type>\u2019"
_SAID = re.compile(
    r"(?m)^(?P<file>/[^:\n]*):(?P<line>\d+):\d+: (?:"
    r"note: say \u2018typename (?P<type>[^\u2019]+)\u2019"
    r"|error: \u2018(?:\S*::)?(?P<template>\w+)<\S*\u2019 missing template arguments"
    rf"|error: invalid operands of types (?:{_FUNCTION}|.* and {_FUNCTION}))"
)
# What can be parsed as comparisons: a name, <, and this.
_CALLED = r"<(?:[^<>;{}()&|]|\((?:[^()]|\([^()]*\))*\))*>\s*\("


def meant(output: str) -> Meant:
    """The places where a compiler's output tells that a keyword is missing."""
    found: Meant = defaultdict(set)
    for said in _SAID.finditer(output):
        keyword = "typename" if said["type"] else "template"
        name = said["type"] or said["template"] or ""
        found[labelled(said["file"])].add((int(said["line"]), keyword, name))
    return found


def with_keywords(text: str, places: Iterable[tuple[int, str, str]], device: frozenset[str]) -> str:
    """The text with the keywords at these places, if they are in device code.

    device: the words that mark a function as the device's.
    """
    plain = blank(text)
    scopes = Scopes(plain)
    starts = [0, *(end.end() for end in re.finditer("\n", text)), len(text)]
    missing: dict[int, str] = {}
    for line, keyword, name in places:
        begin, end = starts[line - 1], starts[line]
        if keyword == "typename":
            spaced = r"\s*".join(map(re.escape, re.findall(r"\w+|\S", name)))
            of_name = rf"(?<![\w:])(?<!typename )(?P<name>(?:::)?{spaced})\b(?!\s*::)"
        else:  # the line is that of an operator: look through its statement
            of_name = rf"{name}\s*(?=<)" if name else rf"\w+\s*(?={_CALLED})"
            of_name = rf"(?:::|\.|->)\s*(?P<name>{of_name})"
            behind = re.compile(r"[;{}]").search(plain, begin + len(plain[begin:end].rstrip()) - 1)
            begin = max(plain.rfind(mark, 0, begin) for mark in ";{}") + 1
            end = behind.end() if behind else len(plain)
        for found in re.compile(of_name).finditer(plain, begin, end):
            heads = scopes.heads(found.start())
            if any(not device.isdisjoint(re.findall(r"\w+", head)) for head in heads):
                missing[found.start("name")] = f"{keyword} "
    pieces, done = [], 0
    for at in sorted(missing):
        pieces += [text[done:at], missing[at]]
        done = at
    return "".join([*pieces, text[done:]])
