"""The files that decide a kernel's builds, looked at again and again."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jitload

Contents = dict[Path, bytes]


class SourceFiles:
    """Sources and headers of some recipes, and Python files beside them.

    Changes are found by polling the files: by their dates, and if those are inconclusive, by their
    contents. That works on every file system.
    """

    def __init__(self, recipes: Iterable[Any], modules: Iterable[Path]) -> None:
        self._modules, self._inputs, self._recipes = list(modules), [], list(recipes)
        self._stats: list[object] = []
        self._waiting: Contents | None = None  # a change, until it has stood for a second look
        self.contents: Contents = {}
        self.contents = self._read()

    def follow(self, recipes: Iterable[Any]) -> None:
        """Follow these recipes' files from now on; newly followed files are no change."""
        self._recipes = list(recipes)
        with contextlib.suppress(OSError):
            now = self._read()
            self.contents = {path: self.contents.get(path, now[path]) for path in now}
            self._waiting = now if now != self.contents else None  # one changed meanwhile

    def look(self) -> bool:
        """Whether `contents` has changed: what the files hold has become something else, and was
        the same at the look before. An editor that is still writing is not taken for a change.
        """
        if self._waiting is None and self._are_current():
            return False
        try:
            now = self._read()
        except OSError:  # an editor that replaces a file may have taken it away for a moment
            return False
        if now == self.contents:
            self._waiting = None
            return False
        if now != self._waiting:
            self._waiting = now
            return False
        self.contents, self._waiting = now, None
        return True

    def _are_current(self) -> bool:
        stats = list(map(_stat, self._modules))
        return stats == self._stats and all(each.are_current() for each in self._inputs)

    def _read(self) -> Contents:
        self._inputs = [next(iter(jitload.readings(recipe))) for recipe in self._recipes]
        self._stats = list(map(_stat, self._modules))
        contents = {path: path.read_bytes() for path in self._modules if path.is_file()}
        for inputs in self._inputs:
            contents |= inputs.files
        return contents


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def changes_between(old: Contents, new: Contents) -> str:
    """The files that differ, and how many lines came and went: "layer_norm.cu +3 −1"."""
    told = []
    for path in sorted(old.keys() | new.keys()):
        before, after = (each.get(path, b"").decode(errors="replace") for each in (old, new))
        if before == after:
            continue
        lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0))[2:]
        added = sum(line.startswith("+") for line in lines)
        removed = sum(line.startswith("-") for line in lines)
        told.append(f"{path.name} +{added} −{removed}")
    return ", ".join(told)


_HEADER = re.compile(
    r"^(?![\s/#}*])[^;=]*?\b((?!__|alignas)\w+)\s*\("
)  # of a function, at a line's beginning


def functions_between(old: Contents, new: Contents) -> tuple[set[str], set[str]]:
    """The functions in which the files differ; and those with whatever names them in its body."""
    edited: set[str] = set()
    bodies: dict[str, str] = {}
    for path, data in new.items():
        if path.suffix not in (".cu", ".cuh", ".h", ".cpp"):
            continue
        lines, before = data.decode(errors="replace").splitlines(), old.get(path, data)
        owners, name = [], ""
        for line in lines:
            if found := _HEADER.match(line):
                name = found[1]
            owners.append(name)
            bodies[name] = f"{bodies.get(name, '')}{line}\n"
        matcher = difflib.SequenceMatcher(
            None, before.decode(errors="replace").splitlines(), lines, autojunk=False
        )
        for kind, _, _, begin, end in matcher.get_opcodes():
            if kind != "equal":
                edited |= set(owners[max(begin - (begin == end), 0) : end] or [""])
    reached = set(edited)
    while more := {
        name
        for name, body in bodies.items()
        if name not in reached and reached & set(re.findall(r"\w+", body))
    }:
        reached |= more
    return edited, reached
