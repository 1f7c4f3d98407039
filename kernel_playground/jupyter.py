"""Starts JupyterLab on a folder, with the lab's additions to its pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from playground_folder import place

SHARE = place.LIBRARY / "lab" / "share"
_CHAPTER = re.compile(r"\]\(([0-9a-z_]*\.ipynb)\)")
_IMPORT = re.compile(r"\bfrom kernels\.(\w+) import\b")


def first_chapter(folder: Path) -> str | None:
    """The chapter that the index names first, relative to the folder."""
    index = folder / "notebooks" / "index.md"
    found = _CHAPTER.search(index.read_text(encoding="utf-8")) if index.is_file() else None
    return f"notebooks/{found[1]}" if found else None


def ops(folder: Path) -> list[str]:
    """The ops that a folder's chapters import, in the order in which a reader comes to them."""
    notebooks = folder / "notebooks"
    index = notebooks / "index.md"
    chapters = _CHAPTER.findall(index.read_text(encoding="utf-8")) if index.is_file() else []
    found: dict[str, None] = {}
    for path in (notebooks / name for name in chapters):
        found |= dict.fromkeys(_IMPORT.findall(_source(path)))
    return [op for op in found if any(folder.glob(f"kernels/**/{op}.cu"))]


def _source(notebook: Path) -> str:
    """The source of a notebook's cells; "" if it cannot be read, which JupyterLab will report."""
    try:
        cells = json.loads(notebook.read_bytes())["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells)
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def build_ahead(folder: Path) -> None:
    """Build kernels in another process, which ends with this one, even after exec."""
    names = ops(folder)
    if not names:
        return
    read, write = os.pipe()
    os.set_inheritable(write, True)
    subprocess.Popen(
        [sys.executable, "-P", "-m", "jitload", "build", "--ahead", *names],
        cwd=folder,
        stdin=read,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read)


def command(folder: Path, more: list[str]) -> list[str]:
    """The command that starts JupyterLab on a folder. more: options for JupyterLab, put last."""
    chapter = first_chapter(folder)
    options = ["--log-level=WARN", f"--ServerApp.root_dir={folder}"]
    options += [f"--LabApp.default_url=/lab/tree/{chapter}"] if chapter else []
    options += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    displays = map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    options += [] if sys.platform == "darwin" or any(displays) else ["--no-browser"]
    alone = "-P"  # so that no module of the folder is imported in place of Jupyter's
    return [sys.executable, alone, "-m", "jupyterlab", *options, *more]


def environment() -> dict[str, str]:
    """The environment with SHARE's settings, such as the colours for CUDA."""
    added = {"JUPYTER_PATH": SHARE, "JUPYTER_CONFIG_PATH": SHARE / "config"}
    paths = {
        name: os.pathsep.join(filter(None, [str(path), os.environ.get(name)]))
        for name, path in added.items()
    }
    return {**os.environ, **paths}


def lab(folder: Path, more: list[str]) -> int:
    """Replace this process with JupyterLab (exec)."""
    if not find_spec("jupyterlab"):
        raise ModuleNotFoundError("JupyterLab is not installed", name="jupyterlab")
    os.chdir(folder)
    build_ahead(folder)
    words = command(folder, more)
    os.execve(words[0], words, environment())
