"""What the preprocessor leaves of a source: its own code, macros expanded and branches taken."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.scan import without_comments
from toolchain import machine

if TYPE_CHECKING:
    from toolchain.code import Code

_DECIDES = re.compile(r"^[ \t]*#[ \t]*(?:define|if|ifdef|ifndef)\b", re.MULTILINE)
_INCLUDE_LINE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">].*$')
_ERROR_LINE = re.compile(r"^[ \t]*#[ \t]*error\b")  # it may look at what a system header defines
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_MARKER = re.compile(r'# (\d+) "((?:\\.|[^"\\])*)"')
_DEEPEST = 50  # of headers in headers: one that includes itself ends here


# Macros in the conditions of #if that are here as they are when the source is compiled.
_KNOWN = {"__CUDA_ARCH__", "__CUDACC__", "__NVCC__", "__cplusplus", "PLAYGROUND_CUDA", "defined"}
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(.*)", re.MULTILINE)


def preprocessed(code: Code, path: Path) -> tuple[str, ...]:
    """The code of a source, line for line, without its directives, its comments and its headers.

    Macros that the source or a header of the user's defines are expanded. System headers are not
    read, so that it takes some 10 ms: where a condition depends on them, there are two codes, that
    where their macros are not defined and that where they are large numbers. Where the preprocessor
    gives up, it is the text as it stands.
    """
    text = code.text(path)
    if not _DECIDES.search(text):
        return (without_comments(text),)
    for_cuda = code.recipe.target == "cuda"
    macros = ["-D__CUDACC__", "-D__NVCC__"] if for_cuda else []
    macros.append(f"-DPLAYGROUND_CUDA={int(for_cuda)}")
    macros += [flag for flag in code.recipe.flags if re.match("-[DU].", flag)]
    flat = "\n".join(_flat(code, path, "source", 0))
    asked = {name for condition in _CONDITION.findall(flat) for name in _WORD.findall(condition)}
    defined = {*_DEFINED.findall(flat), *(re.split("[=(]", flag[2:])[0] for flag in macros)}
    unknown = sorted(f"-D{name}=999999" for name in asked - defined - _KNOWN)
    ways = [macros, [*macros, *unknown]] if unknown else [macros]
    codes = [_run(flat, way) for way in ways]
    return tuple(without_comments(text) if code is None else code for code in codes)


def _run(text: str, macros: list[str]) -> str | None:
    """What the preprocessor makes of a text; None where it fails."""
    command = [machine.cxx(), "-E", "-w", "-x", "c++", *macros, "-"]
    source = f'#line 1 "source"\n{text}\n'
    try:
        run = subprocess.run(
            command, input=source, capture_output=True, text=True, timeout=machine.PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _own_lines(run.stdout) if run.returncode == 0 else None


def _flat(code: Code, path: Path, name: str, depth: int) -> list[str]:
    """The lines of a file, with those of the user's headers where they are included."""
    lines = []
    for number, line in enumerate(without_comments(code.text(path)).split("\n"), 1):
        include = _INCLUDE_LINE.match(line)
        if include is None:
            lines.append("" if _ERROR_LINE.match(line) else line)
            continue
        header = _header(code, path, *include.groups())
        if header and depth < _DEEPEST:
            lines += ['#line 1 "header"', *_flat(code, header, "header", depth + 1)]
        lines.append(f'#line {number + 1} "{name}"')
    return lines


def _header(code: Code, path: Path, quote: str, name: str) -> Path | None:
    """The header of the user's that a file includes by this name."""
    beside = [path.parent] if quote == '"' else []
    places = (Path(os.path.normpath(p / name)) for p in (*beside, *code.recipe.include))
    return next((place for place in places if place in code.files), None)


def _own_lines(output: str) -> str:
    """Of the preprocessor's output the source's own lines, each in its place."""
    lines: list[str] = []
    number, own = 0, False
    for line in output.split("\n"):
        if marker := _MARKER.match(line):
            number, own = int(marker[1]) - 1, marker[2] == "source"
            continue
        if own:
            lines += [""] * (number + 1 - len(lines))
            lines[number] += line
        number += 1
    return "\n".join(lines)
