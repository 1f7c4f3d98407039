"""Rewrites paths in an error's text so that JupyterLab's links to them work.

JupyterLab makes a link of a slash with the letters, digits and `.-_/` after it, and `:line:column`.
So in `kernels/square.cu:12:20` it links "/square.cu:12:20", which does not exist. A path outside of
the folder that its server shows would open in the debugger. Here each path becomes an absolute one
that works, or a bare name, which is no link.

If no Jupyter server shows the text, as in a terminal, it is unchanged.
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
    """The folder that the Jupyter server of this process shows; None without a server."""
    server = os.environ.get("JPY_PARENT_PID")
    jupyter = sys.modules.get("jupyter_core.paths")  # every Jupyter kernel has imported it
    if server is None or jupyter is None:
        return None
    try:
        file = Path(jupyter.jupyter_runtime_dir(), f"jpserver-{server}.json")
        settings = json.loads(file.read_text())
        return Path(settings["root_dir"])
    except (OSError, ValueError, KeyError):
        return None


def linked(text: str) -> str:
    """The text with each file's path made absolute, or reduced to the name."""
    root = server_root()
    if root is None:
        return text

    def shown(match: re.Match) -> str:
        path = labelled(match[0])
        return link(path, root) or path.name if path.is_file() else match[0]

    return _PATH.sub(shown, text)


def link(path: Path, root: Path) -> str | None:
    """A file's path, if JupyterLab can open it by a link; `root` is the server's folder."""
    try:
        within = path.resolve().relative_to(root.resolve())
    except ValueError:
        return None
    whole = str(root / within)
    hidden = any(part.startswith(".") for part in within.parts)  # the server hides it, too
    return whole if _WHOLE.fullmatch(whole) and not hidden else None
