"""PyTorch's C++ headers, for the CPU target: how much of them a source needs, and whether first.

simulator/include/torch/extension.h leaves out half of what <torch/extension.h> includes, which
hardly any extension uses. Where a source does, it is compiled with ALL.
"""

from __future__ import annotations

import re
from pathlib import Path

from simulator.scan import without_comments
from toolchain.code import Code

ALL = "-DSIMULATOR_ALL_OF_TORCH"
_BEGINNINGS = ("torch/extension.h", "torch/torch.h")
_GUARD = re.compile(r"\A\s*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\n\s*#[ \t]*define[ \t]+\1[ \t]*\n")
_INCLUDE = re.compile(r'#[ \t]*include[ \t]*(["<])([^">]+)[">]')
_REST = re.compile(
    r"\btorch\s*::\s*(nn|optim|data|jit|serialize|python|save|load|pickle_\w+)\b"
    r"|\b(nn|optim)\s*::|\bTORCH_MODULE\b"
)
_LACKS = re.compile(r"error: .*(\btorch\b|[‘'](nn|optim|jit|serialize)[’'])")  # noqa: RUF001


def uses_all(code: Code) -> bool:
    """Whether the sources name something of the headers that are left out."""
    return any(_REST.search(without_comments(code.text(path))) for path in code.files)


def come_first(code: Code, path: Path) -> bool:
    """Whether a source includes PyTorch's headers before it says anything else.

    Other headers of the system may stand before them: their order makes no difference.
    """
    text = without_comments(code.text(path)).removeprefix("\ufeff")
    for line in map(str.strip, _GUARD.sub("", text).splitlines()):
        if not line or re.match(r"#[ \t]*pragma[ \t]+once", line):
            continue
        found = _INCLUDE.match(line)
        if found is None:
            return False
        if found[2] in _BEGINNINGS:
            return True
        if header := code.header(path, found[1], found[2]):
            return header != path and come_first(code, header)
    return False


def may_lack(text: str, said: str) -> bool:
    """Whether a build failed, as its file for ninja has it, for want of the rest."""
    return ALL not in text and bool(_LACKS.search(said))
