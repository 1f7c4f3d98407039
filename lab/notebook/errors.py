"""Adds to errors in JupyterLab: links to the cells that they name, and the full log.

The source of a %%cu cell is in a file that the next run of the cell overwrites, so a reader has to
edit the cell. Outside of JupyterLab an error names the file.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import jitload

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

MOST = 20_000  # characters of a log that a page shows


class Cells:
    """The %%cu cells of a notebook in JupyterLab, by the files that they write."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._ids: dict[Path, str] = {}

    def note(self, paths: Iterable[Path]) -> None:
        """Remember that the cell which runs now writes these files."""
        message = getattr(self._shell, "get_parent", dict)()
        known = message.get("metadata", {}).get("cellId")
        for path in paths if known and os.environ.get("JPY_SESSION_NAME") else ():
            self._ids[path] = known

    def named(self, text: str) -> str:
        """The text with `%%cu NAME:line` in place of the file of a cell."""
        for path in self._ids:
            for name in (str(path), jitload.label(path)):
                text = re.sub(rf"(?<![\w./-]){re.escape(name)}(?=[\s:,]|$)", _magic(path), text)
        return text

    def links(self, text: str) -> str:
        """As HTML, a link to each cell that `named` has put into a text."""
        notebook = Path(os.environ.get("JPY_SESSION_NAME", "")).name
        found = []
        for path, known in self._ids.items():
            lines = re.findall(rf"{re.escape(_magic(path))}:(\d+)", text)
            if not lines:
                continue
            where = f"line{'s' * (len(lines) > 1)} {', '.join(dict.fromkeys(lines))}"
            target = html.escape(f"{notebook}#cell-id={known}")
            found.append(f'<div><a href="{target}">Open the cell {_magic(path)}</a>: {where}</div>')
        return "".join(dict.fromkeys(found))


def _magic(path: Path) -> str:
    return f"%%cu {path.stem}"


def log_of(error: BaseException | None) -> str:
    """The compilers' full output for an error as folded HTML; "" if there is none."""
    log = getattr(error, "log", None)
    try:
        said = Path(log).read_text(errors="replace") if log else ""
    except OSError:  # somebody emptied the cache
        said = ""
    if not said:
        return ""
    cut = f"(the last {MOST:,} characters of {log})\n" if len(said) > MOST else ""
    text = html.escape(f"{cut}{said[-MOST:]}")
    look = "white-space: pre-wrap; max-height: 30em; overflow: auto"
    return f'<details><summary>full log</summary><pre style="{look}">{text}</pre></details>'
