"""How much of PyTorch's C++ headers a source needs, for the CPU target.

simulator/include/torch/extension.h leaves out half of the headers of <torch/extension.h>, which few
extensions use. A source that uses them is compiled with ALL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from simulator.scan import without_comments

ALL = "-DSIMULATOR_ALL_OF_TORCH"
_REST = re.compile(
    r"\btorch\s*::\s*(nn|optim|data|jit|serialize|python|save|load|pickle_\w+)\b"
    r"|\b(nn|optim)\s*::|\bTORCH_MODULE\b"
)
_LACKS = re.compile(r"error: .*(\btorch\b|[‘'](nn|optim|jit|serialize)[’'])")  # noqa: RUF001


def uses_all(texts: Iterable[str]) -> bool:
    """Whether texts name something from the headers that are left out."""
    return any(_REST.search(without_comments(text)) for text in texts)


def may_lack(text: str, output: str) -> bool:
    """Whether a build with this ninja file may have failed because headers were left out."""
    return ALL not in text and bool(_LACKS.search(output))
