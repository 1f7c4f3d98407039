"""The cells %%cu of a notebook, as files: NOTEBOOK.ipynb:NAME."""

from __future__ import annotations

import json
import re
from pathlib import Path


def files(given: str, to: Path) -> list[str]:
    """The paths of sources: the one given, or those of a notebook's cell, written beside `to`.

    Raises:
        ValueError: the notebook has no such cell.
    """
    path, _, name = given.partition(":")
    if Path(path).suffix != ".ipynb":
        return [given]
    cells = dict(_cells(Path(path)))
    if name not in cells:
        has = ", ".join(sorted(cells)) or "none"
        raise ValueError(f"{path} has no cell %%cu {name}; it has: {has}. Wanted is {path}:NAME")
    from lab.notebook.cu_magic import write  # late: only notebooks need IPython

    return list(map(str, write(to.absolute() / "cells" / name, cells[name])))


def _cells(notebook: Path) -> list[tuple[str, str]]:
    found = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code" and (magic := re.match(r"%%cu[ \t]+(\w+).*\n", text)):
            found.append((magic[1], text[magic.end() :]))
    return found
