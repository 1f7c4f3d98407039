"""Finds the folder that a process uses, and the rest of the project."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

MARKER = ".kernel-playground.json"  # in a folder that `kernel-playground new` made
SETTING = "KERNEL_PLAYGROUND_FOLDER"
# The names that are imported from any folder, and the licence.
OF_LIBRARY = (
    "LICENSE",
    "jitload.py",
    "jitloader",
    "lab",
    "playground_folder",
    "simulator",
    "toolchain",
)
LIBRARY = Path(__file__).resolve().parents[1]  # the clone, or within a wheel
_IS_CLONE = (LIBRARY / "kernels").is_dir()
ORIGINALS = LIBRARY if _IS_CLONE else LIBRARY.parent / "originals"  # what `new` copies


def root() -> Path:
    """The folder of this process; outside of all folders, the originals (in a clone, the clone)."""
    return marked() or ORIGINALS


def is_for_editing() -> bool:
    """Whether `root` is a clone or a user's folder, and not files that a wheel has installed."""
    return _IS_CLONE or marked() is not None


@cache
def marked() -> Path | None:
    """The folder with a marker, if any: the one that SETTING names, or the nearest around the
    program's file, or around the working directory. It stays the same as long as the process lives.
    """
    if setting := os.environ.get(SETTING):
        return Path(setting).resolve()
    return next(filter(None, map(around, _starts())), None)


def around(place: Path) -> Path | None:
    """The nearest folder with a marker: the place itself, or one that contains it."""
    place = place.resolve()
    return next((each for each in (place, *place.parents) if (each / MARKER).is_file()), None)


def _starts() -> Iterator[Path]:
    """The program's folder, unless the program is the environment's; then the working directory."""
    if sys.path and (first := sys.path[0]) and around(Path(first)):
        import sysconfig  # late, because importing the loader would otherwise wait for it

        of_environment = map(sysconfig.get_path, ("scripts", "stdlib", "purelib", "platlib"))
        if not any(Path(first).is_relative_to(folder) for folder in of_environment):
            yield Path(first)
    try:
        yield Path.cwd()
    except FileNotFoundError:  # the working directory was removed
        return


def require(*names: str) -> None:
    """Raises ImportError if another module would be imported in place of one of LIBRARY's."""
    for name in names:
        found = find_spec(name)
        if found and found.origin and not Path(found.origin).resolve().is_relative_to(LIBRARY):
            raise ImportError(
                f"{found.origin} is found as `{name}`, and the playground has a module of its own"
                " by that name: rename it, or start Python in another folder"
            )


def spec_of(name: str) -> ModuleSpec | None:
    """The import spec of a module of the folder; None if there is no folder, or no such file."""
    folder = marked()
    spec = PathFinder.find_spec(name, [str(folder)]) if folder else None
    if spec and spec.loader is None:  # no __init__.py: a plain list, else sys.path would count
        spec.submodule_search_locations = list(spec.submodule_search_locations)
    return spec
