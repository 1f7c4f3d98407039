"""Which build a recipe's files had when they were last read, so that a warm load is fast.

To find the build, all files are read and searched for the headers that they include. A note in the
cache has the result, with the stat of every file that was looked at and all else that decided it.
As long as these are the same, a load reads only this note and the build's manifest.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path

import torch

from jitloader import inputs as reading
from jitloader.builds import Build
from jitloader.cache import Cache
from jitloader.inputs import Inputs, Stat
from playground_folder.place import LIBRARY
from toolchain import machine, sources
from toolchain.code import SIMULATOR, Recipe
from toolchain.notes import digest_of, read_note, write_note

_FORMAT = "2"  # of the notes


class _Kept(Mapping[Path, bytes]):
    """The files of a build in the cache, each read when it is accessed."""

    def __init__(self, build: Build):
        self._build = build

    @cached_property
    def _places(self) -> dict[Path, Path]:
        folder = self._build.folder / "sources"
        return {sources.labelled(name): folder / it for name, it in self._build.kept.items()}

    def __getitem__(self, path: Path) -> bytes:
        return self._places[path].read_bytes()

    def __iter__(self) -> Iterator[Path]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def remembered(recipe: Recipe, cache: Cache) -> Inputs | None:
    """The remembered inputs, with their build, if they are still current; else None."""
    note = read_note(_note(recipe, cache))
    if note is None:
        return None
    now = {place: reading._stat(place) for place in note["stats"]}
    if any(_facts(now[place]) != was for place, was in note["stats"].items()):
        return None
    compilers = reading._compilers(recipe.target, cache)
    if note["surroundings"] != _surroundings(recipe, cache, compilers, note["cccl"]):
        return None
    build = Build.read(Path(note["folder"]))
    if build is None or not cache.trusts(build.folder):
        return None
    if note["library"] != _library_facts(build) and not build.is_whole():
        return None
    environment = reading._environment()
    inputs = Inputs(recipe, _Kept(build), compilers, cache, now, environment, note["named"])
    vars(inputs).update(digest=build.digest, build=build)
    return inputs


def remember(inputs: Inputs, build: Build) -> None:
    """Note that these inputs have this build, which is whole.

    If a file was just changed there is no note: another change might not show in its stat.
    """
    settled = all(status.is_settled for status in inputs.stats.values() if status)
    if inputs.recipe.part or build.launchers or not settled:
        return
    recipe, cache = inputs.recipe, inputs.cache
    # Files in which other processes note further headers that the compiler reads.
    more = (str(reading._note(recipe, folder)) for folder in cache.folders)
    stats = {place: _facts(reading._stat(place)) for place in more}
    if not inputs.know_all_noted():
        return
    stats |= {place: _facts(status) for place, status in inputs.stats.items()}
    facts = {
        "folder": str(build.folder),
        "library": _library_facts(build),
        "cccl": inputs.wants_cccl,
        "named": inputs.named,
        "surroundings": _surroundings(recipe, cache, inputs.compilers, inputs.wants_cccl),
        "stats": stats,
    }
    with contextlib.suppress(OSError):  # a full disk
        if read_note(_note(recipe, cache)) != facts:
            write_note(_note(recipe, cache), facts)


def _note(recipe: Recipe, cache: Cache) -> Path:
    """The note's file; clones of the project share a recipe, but not the note."""
    apart = digest_of(_FORMAT, recipe.key, *map(str, recipe.sources), str(LIBRARY))[:16]
    return cache.own / "readings" / f"{recipe.name}_{apart}.json"


def _facts(status: Stat | None) -> list[int] | None:
    return status and list(status[:5])


def _library_facts(build: Build) -> list[list[int] | None]:
    return [_facts(reading._stat(str(path))) for path in build.files()]


def _surroundings(recipe: Recipe, cache: Cache, compilers: str, wants_cccl: bool) -> str:
    """The digest of everything that decides which build it is, except the files."""
    parts = [str(reading.LAYOUT), recipe.key, recipe.formulas, *map(str, cache.folders), compilers]
    parts += [sys.implementation.cache_tag, torch.__version__, machine.cpu(), platform.machine()]
    parts += [f"{name}={value}" for name, value in reading._environment().items()]
    parts += [machine.cxx(), _own_state(), str(wants_cccl and machine.cccl())]
    parts.append(str(machine.simulated()) if recipe.target == "cpu" else "")
    if recipe.target == "cuda":
        from toolchain.tuning import this_gpu

        parts += [*machine.architectures(), str(machine.nvccs_host_is_clang()), str(this_gpu())]
    return digest_of(*parts)


@cache
def _own_state() -> str:
    """A digest that tells whether the simulator and toolchain/ have changed, once per process.

    It covers the files' names, and the sums of their sizes and times. Among these is st_ctime,
    which cannot be set back.
    """
    files: list[str] = []
    size = changed = touched = 0
    folders = [str(SIMULATOR), str(LIBRARY / "toolchain")]
    for folder in folders:  # it grows during the loop
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir():
                    stat = entry.stat()
                    files.append(entry.path)
                    size += stat.st_size
                    changed += stat.st_mtime_ns
                    touched += stat.st_ctime_ns
                elif entry.name != "__pycache__":
                    folders.append(entry.path)
    return digest_of("\n".join(sorted(files)), f"{size} {changed} {touched}")
