"""Follows the Python files that belong to kernels from cell to cell, as kernels are followed:
reference.py, and kernels/NAME.py of every op that was imported.

A changed file is imported again in its own module, and names that a notebook imported from it, by
`from reference import gelu`, refer to the new ones. Other objects that hold a function of the file,
such as a class or a partial, keep the old one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jitload
from lab.notebook.builds import Line

REFERENCE = jitload.KERNELS.parent / "reference.py"

Stat = tuple[int, int]


class Modules:
    """The state of those files when they were last imported."""

    def __init__(self) -> None:
        self._stats: dict[str, Stat] = {}  # by the module's name
        self._errors: dict[str, str] = {}  # that are shown above

    def note(self) -> None:
        """Remember the files of modules that were imported meanwhile."""
        for name, path in followed():
            if name not in self._stats and (stat := stat_of(path)):
                self._stats[name] = stat

    def follow(self, names: dict[str, Any]) -> None:
        """Import changed files again. names: the notebook's namespace, which is updated."""
        self.note()
        for name, path in followed():
            stat = stat_of(path)
            if stat is None or stat == self._stats[name]:
                continue
            label = path.relative_to(REFERENCE.parent).as_posix()
            try:
                import_again(sys.modules[name], names)
            except jitload.CompileError:  # the kernel reports it; retried later
                continue
            except Exception as error:  # whatever the file raises
                if self._errors.get(name) != (said := f"{type(error).__name__}: {error}"):
                    self._errors[name] = said
                    after = f"What {label} said before stays in force until this is mended."
                    Line().show_error(error, after)
            else:
                self._stats[name] = stat
                self._errors.pop(name, None)
                Line().tell(label, "changed, and imported again")


def followed() -> list[tuple[str, Path]]:
    """The names and files of the followed modules that are imported."""
    ops = {f"kernels.{op}": path for op, path in jitload.op_files(".py").items()}
    files = {"reference": REFERENCE} | ops
    return [(name, path) for name, path in files.items() if name in sys.modules]


def stat_of(path: Path) -> Stat | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def import_again(module: ModuleType, names: dict[str, Any]) -> None:
    """Run a module's file again; if that fails, the module stays as it was."""
    before = dict(vars(module))
    path = Path(module.__file__)
    try:
        # not importlib.reload: it may miss an edit made within a second of its cached file
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except BaseException:
        vars(module).clear()
        vars(module).update(before)
        raise
    for name, value in list(names.items()):
        own = getattr(value, "__name__", name)  # an alias has the function's name
        if own in before and before[own] is value and not own.startswith("__"):
            names[name] = vars(module)[own]
