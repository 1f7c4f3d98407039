"""The part of a .cu and its headers that the host code depends on: all but what only kernels use.

A kernel's body does not affect the launchers, nor does a constant that only kernels use. These are
removed, with the lines kept in place. So an edit there does not change what is compiled for the
host.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from simulator.scan import blank, closing, without_comments

_CONSTANT = re.compile(  # at namespace scope, on one line
    r"^(?:(?:inline|static)[ \t]+)*constexpr[ \t]+(?:[\w:]+[ \t]+)+(\w+)[ \t]*="
    r"(?:[^;{}\"'#,()\n]|\([^;{}\"'#()\n]*\))*;",
    re.MULTILINE,
)
# What may precede a declaration; otherwise it belongs to a template or a macro, for example.
_ENDED = re.compile(r"(?:\A|[;{}]|^[A-Z_][A-Z0-9_]*\([^()]*\))\Z", re.MULTILINE)
_PASTED = re.compile(r"(\w*)[ \t]*##[ \t]*(\w*)")
_MACRO = re.compile(r"#[ \t]*define[ \t]+\w+\(([^)]*)\)")
_WORD = re.compile(r"[A-Za-z_]\w*")


def texts_of(
    texts: Mapping[Path, str], flags: str, emptied: Callable[[str], str]
) -> dict[Path, str]:
    """Texts that are compiled together, without what only kernels use.

    flags: the compiler's; emptied: returns a text with empty kernels.
    """
    emptied_texts = {path: emptied(text) for path, text in texts.items()}
    named = Counter(_WORD.findall(flags))
    pastes: list[list[str]] = []
    for text in emptied_texts.values():
        words, pasted = _names(text)
        named.update(words)
        pastes += pasted

    def is_unknown(name: str, constant: str) -> bool:
        elsewhere = named[name] > _WORD.findall(constant).count(name)
        return not (elsewhere or any(_makes(paste, name) for paste in pastes))

    left = {path: _without_constants(text, is_unknown) for path, text in emptied_texts.items()}
    return {path: _stripped(text) for path, text in left.items()}


@lru_cache(maxsize=512)
def _stripped(text: str) -> str:
    """A text without comments, and without spaces at the ends of lines and of the text."""
    return re.sub(r"[ \t]+$", "", without_comments(text), flags=re.MULTILINE).rstrip("\n") + "\n"


@lru_cache(maxsize=512)
def without_bodies(text: str) -> str:
    """A text with empty kernel bodies; lines keep their numbers."""
    if "__global__" not in text:
        return text
    plain, pieces, done = blank(text), [], 0
    for word in re.finditer(r"\b__global__\b", plain):
        opening = word.end()
        while opening is not None and (match := re.compile(r"[({;]").search(plain, opening)):
            if match[0] != "(":
                break
            opening = closing(plain, match.start())
        if opening is None or match is None or match[0] == ";" or match.start() < done:
            continue
        end = closing(plain, match.start())
        body = text[match.end() : end and end - 1]
        if end is None or not _is_complete(blank(body)):
            continue
        pieces += [text[done : match.end()], re.sub(r"[^\\\n]|\\(?!\n)", "", body)]
        done = end - 1
    return "".join([*pieces, text[done:]])


@lru_cache(maxsize=512)
def kernels_of(text: str) -> frozenset[str]:
    """The possible names of kernels in a text."""
    heads = re.findall(r"\b__global__\b([^;{]*)", blank(text)) if "__global__" in text else []
    return frozenset(name for head in heads for name in names_in(head))


def names_in(head: str) -> list[str]:
    """The possible names of a kernel in its head."""
    return re.findall(r"(\w+)\s*\(", head)


def _is_complete(body: str) -> bool:
    """Whether a kernel's body does not affect later code (as a #define would), and ends at the same
    brace whatever branches the preprocessor takes."""
    depth, outside = 0, []
    for line in body.split("\n"):
        directive = re.match(r"[ \t]*#[ \t]*(\w*)", line)
        if directive is None:
            depth += line.count("{") - line.count("}")
        elif directive[1] in ("if", "ifdef", "ifndef"):
            outside.append(depth)
        elif directive[1] in ("else", "elif", "endif"):
            if not outside or depth != outside[-1]:
                return False
            if directive[1] == "endif":
                outside.pop()
        elif directive[1] != "pragma":
            return False
    return not outside


@lru_cache(maxsize=512)
def _names(text: str) -> tuple[Counter[str], list[list[str]]]:
    """The words of a text without its comments; and for each ## the words beside it that are not
    parameters of its macro."""
    text, pastes = without_comments(text), []
    for paste in _PASTED.finditer(text) if "##" in text else ():
        macros = list(_MACRO.finditer(text, 0, paste.start()))
        parameters = _WORD.findall(macros[-1][1]) if macros else []
        pastes.append([word for word in paste.groups() if word and word not in parameters])
    return Counter(_WORD.findall(text)), pastes


def _makes(paste: list[str], name: str) -> bool:
    """Whether a ## may form this name."""
    return all(word in name for word in paste)


def _without_constants(text: str, is_unknown: Callable[[str, str], bool]) -> str:
    """A text without the constants for which is_unknown(name, declaration) is true."""
    if "constexpr" not in text:
        return text
    plain, pieces, done = blank(text), [], 0
    for constant in _CONSTANT.finditer(plain):
        if text.endswith("\\\n", 0, constant.start()):
            continue  # in a macro
        before = re.sub(r"(?m)^[ \t]*#.*", "", plain[: constant.start()]).rstrip()
        if _ENDED.search(before) and is_unknown(constant[1], text[slice(*constant.span())]):
            pieces.append(text[done : constant.start()])
            done = constant.end()
    return "".join([*pieces, text[done:]])
