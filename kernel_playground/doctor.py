"""What there is for notebooks, and then what `python -m jitload doctor` says of the compilers."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import jitload
from jitload import doctors_row as row
from kernel_playground.contents import LIBRARY
from kernel_playground.copies import STAGE, release
from playground_folder import place

NOTEBOOKS = ("jupyterlab", "ipykernel", "ipywidgets", "matplotlib", "pandas")


def doctor() -> int:
    """Print a line for each thing, the remedy where it is missing; the exit status is 0 where all
    that the default target and the notebooks need is there."""
    row("playground", f"{release()}, {place.LIBRARY}")
    shadowed, missing = strangers(), [name for name in NOTEBOOKS if not _version(name)]
    for name, found in shadowed.items():
        row(name, None, f"{found} is found first; rename it, or work in another folder")
    folder = place.marked()
    row("folder", folder, "none around here, so that ops are the originals: kernel-playground new")
    if folder and (folder / STAGE).exists():
        row("update", None, f"one of {folder} was interrupted: kernel-playground update")
    for name in NOTEBOOKS:
        row(name, _version(name), f"{sys.executable} -m pip install {name}")
    return jitload.doctor() or int(bool(shadowed or missing))


def strangers() -> dict[str, str]:
    """Modules that are imported instead of the project's own, with their files."""
    found = {}
    for name in (Path(part).stem for part in LIBRARY):
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin) if spec and spec.origin else None
        if origin is None or not origin.resolve().is_relative_to(place.LIBRARY):
            found[name] = str(origin)
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
