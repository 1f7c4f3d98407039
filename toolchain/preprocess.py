"""What the preprocessor leaves of a source: its own code, macros expanded and branches taken."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from toolchain import machine
from toolchain.sources import without_comments

if TYPE_CHECKING:
    from toolchain.inputs import Inputs

_DECIDES = re.compile(r"^[ \t]*#[ \t]*(?:define|if|ifdef|ifndef)\b", re.MULTILINE)
_INCLUDE_LINE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">].*$')
_MARKER = re.compile(r'# (\d+) "((?:\\.|[^"\\])*)"')
_DEEPEST = 50  # of headers in headers: one that includes itself ends here


def preprocessed(inputs: Inputs, path: Path) -> str:
    """The code of a source, line for line, without its directives, its comments and its headers.

    Macros that the source or a header of the user's defines are expanded; system headers are not
    read, so that it takes some 10 ms. Where the preprocessor gives up, the text as it stands.
    """
    text = inputs.text(path)
    if not _DECIDES.search(text):
        return without_comments(text)
    for_cuda = inputs.recipe.target == "cuda"
    macros = ["-D__CUDACC__", "-D__NVCC__"] if for_cuda else []
    macros.append(f"-DPLAYGROUND_CUDA={int(for_cuda)}")
    macros += [flag for flag in inputs.recipe.flags if re.match("-[DU].", flag)]
    try:
        run = subprocess.run(
            [machine.cxx(), "-E", "-w", "-x", "c++", *macros, "-"],
            input='#line 1 "source"\n' + "\n".join(_flat(inputs, path, "source", 0)) + "\n",
            capture_output=True,
            text=True,
            timeout=machine.PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return without_comments(text)
    return _own_lines(run.stdout) if run.returncode == 0 else without_comments(text)


def _flat(inputs: Inputs, path: Path, name: str, depth: int) -> list[str]:
    """The lines of a file, with those of the user's headers where they are included."""
    lines = []
    for number, line in enumerate(without_comments(inputs.text(path)).split("\n"), 1):
        include = _INCLUDE_LINE.match(line)
        if include is None:
            lines.append(line)
            continue
        header = _header(inputs, path, *include.groups())
        if header and depth < _DEEPEST:
            lines += ['#line 1 "header"', *_flat(inputs, header, "header", depth + 1)]
        lines.append(f'#line {number + 1} "{name}"')
    return lines


def _header(inputs: Inputs, path: Path, quote: str, name: str) -> Path | None:
    """The header of the user's that a file includes by this name."""
    beside = [path.parent] if quote == '"' else []
    places = (Path(os.path.normpath(p / name)) for p in (*beside, *inputs.recipe.include))
    return next((place for place in places if place in inputs.files), None)


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
