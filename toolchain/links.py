"""Paths in the text of an error, as JupyterLab makes links of them.

JupyterLab takes for a path what begins with a slash, as far as letters, digits and `.-_/` go, and
behind it `:line:column`. So of `kernels/square.cu:12:20` it links "/square.cu:12:20", to nothing;
and what lies outside of the folder that its server shows, it offers to open in the debugger. Here a
path becomes a whole one that works, or a bare name, which is no link.

Where no Jupyter server shows the text, as in a terminal, it stays what it is.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from toolchain.sources import labelled

_PATH = re.compile(r"(?<![\w./~-])(?:/|(?:[\w.-]+/)+)[\w./-]*[\w-]")
_WHOLE = re.compile(r"/[\w./-]+")


def server_root() -> Path | None:
    """The folder that the Jupyter server shows whose kernel this process is; else None."""
    server = os.environ.get("JPY_PARENT_PID")
    jupyter = sys.modules.get("jupyter_core.paths")  # which every kernel of Jupyter has imported
    if server is None or jupyter is None:
        return None
    try:
        file = Path(jupyter.jupyter_runtime_dir(), f"jpserver-{server}.json")
        settings = json.loads(file.read_text())
        return Path(settings["root_dir"])
    except (OSError, ValueError, KeyError):
        return None


def linked(text: str) -> str:
    """The text with the path of each file in it whole, or bare."""
    root = server_root()
    if root is None:
        return text

    def shown(match: re.Match) -> str:
        path = labelled(match[0])
        return link(path, root) or path.name if path.is_file() else match[0]

    return _PATH.sub(shown, text)


def link(path: Path, root: Path) -> str | None:
    """A file's path where JupyterLab can open it by its link, with `root` the server's folder."""
    try:
        within = path.resolve().relative_to(root.resolve())
    except ValueError:
        return None
    whole = str(root / within)
    hidden = any(part.startswith(".") for part in within.parts)  # from the server, too
    return whole if _WHOLE.fullmatch(whole) and not hidden else None
