"""Checks what notebooks need, and then the compilers, as `python -m jitload doctor` does."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import jitload
from jitload import doctors_row as row
from kernel_playground.contents import LIBRARY
from kernel_playground.copies import STAGE, release
from playground_folder import place

NOTEBOOKS = ("jupyterlab", "ipykernel", "ipywidgets", "matplotlib", "pandas")


def doctor() -> int:
    """Print a line for each thing, with the remedy where it is missing.

    The exit status is 0 if everything that notebooks and the default target need is there.
    """
    row("playground", f"{release()}, {place.LIBRARY}")
    hidden = namesakes(Path.cwd())
    for name, path in hidden.items():
        row(name, None, f"{path} is imported from here in its place: rename it")
    folder = place.marked()
    row(
        "folder",
        folder,
        "none around here, so ops are the originals: kernel-playground new makes one",
    )
    if folder and (folder / STAGE).exists():
        row("update", None, f"one of {folder} was interrupted: kernel-playground update")
    versions = {name: _version(name) for name in NOTEBOOKS}
    for name, found in versions.items():
        row(name, found, f"{sys.executable} -m pip install {name}")
    return jitload.doctor() or int(bool(hidden) or not all(versions.values()))


def namesakes(folder: Path) -> dict[str, Path]:
    """What Python, started in a folder, would import instead of the library's modules."""
    if folder == place.LIBRARY:
        return {}
    names = [Path(part).stem for part in LIBRARY]
    places = {name: (folder / f"{name}.py", folder / name / "__init__.py") for name in names}
    return {name: path for name, both in places.items() for path in both if path.is_file()}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
