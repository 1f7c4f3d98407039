"""The inputs of a build (sources, headers, flags, compilers) and the digest of them all."""

from __future__ import annotations

import ast
import contextlib
import os
import platform
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from jitloader.builds import Build
from jitloader.cache import Cache
from toolchain import machine, named_files, sources
from toolchain.code import INSTALLED, SIMULATOR, Code, Recipe, is_systems
from toolchain.errors import MissingTool
from toolchain.notes import digest_of, read_note, write_note
from toolchain.sources import label

COARSEST_CLOCK = 2_000_000_000  # ns: the resolution of FAT's times
READ_BY_COMPILERS = (
    *("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "PYTORCH_NVCC"),
    *("SDKROOT", "MACOSX_DEPLOYMENT_TARGET"),
)
LAYOUT = 6  # of the cache: raised when the contents of a build's folder change meaning


class Stat(NamedTuple):
    """What tells, without reading a file, whether it has changed."""

    device: int
    inode: int
    size: int
    changed: int  # st_mtime_ns and st_ctime_ns: only the first can be set back
    touched: int
    is_settled: bool  # last changed long enough ago that a new change would show


def _stat(place: str) -> Stat | None:
    """The Stat of a file; None if there is none."""
    try:
        status = os.stat(place)  # noqa: PTH116 - a Path takes twice the time
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    settled = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > COARSEST_CLOCK
    times = status.st_mtime_ns, status.st_ctime_ns
    return Stat(status.st_dev, status.st_ino, status.st_size, *times, settled)


@dataclass(frozen=True)
class Inputs(Code):
    """The inputs of a build, as they were when they were read."""

    cache: Cache  # it keeps compilers' versions and headers from depfiles
    stats: dict[str, Stat | None]  # of every place searched; None if there is no file
    environment: dict[str, str]  # the variables that compilers read
    named: dict[str, str]  # digests of other files that flags name, such as static libraries

    @classmethod
    def read(cls, recipe: Recipe, cache: Cache) -> Inputs:
        """Read the files, and follow #include as the compiler does.

        Headers that a macro includes are known after a first build, from its depfile: see `note`.
        """
        files: dict[Path, bytes] = {}
        stats: dict[str, Stat | None] = {}

        def is_file(place: str) -> bool:
            if place not in stats:
                stats[place] = _stat(place)
            return stats[place] is not None

        environment = _environment()
        flags = named_files.options_in(recipe.flags)
        named = named_files.named_in(flags)
        for places in named_files.libraries_in(flags, environment.get("LIBRARY_PATH", "")):
            named += next(filter(None, (list(filter(is_file, each)) for each in places)), [])
        folders = [*recipe.include, *_folders_named_in(flags, environment), INSTALLED]
        queue = [*map(str, recipe.sources), *_noted(recipe, cache)]
        if recipe.target == "cuda":  # only GPUs have tuning tables
            from toolchain.tuning import tuning_table

            queue += map(str, map(tuning_table, recipe.sources))
        while queue:
            path = Path(place := queue.pop())
            if path in files or not is_file(place):
                continue
            files[path] = path.read_bytes()
            for quote, name in sources.asked_for(files[path].decode(errors="replace")):
                beside = [path.parent] if quote == '"' else []
                places = (sources.file_in(p, name) for p in (*beside, *folders))
                if header := next(filter(is_file, places), None):
                    queue.append(header)
                else:
                    is_file(sources.file_in("/usr/include", name))  # it may be installed later
        for path in recipe.sources:
            if path not in files:
                raise FileNotFoundError(f"{path}: this source of kernel {recipe.name!r} is gone")
        contents = {place: _content(place) for place in named if is_file(place)}
        compilers = _compilers(recipe.target, cache)
        return cls(recipe, files, compilers, cache, stats, environment, contents)

    @classmethod
    def kept(cls, recipe: Recipe, build: Build) -> Inputs:
        """The inputs of a build as the cache keeps them: always current."""
        folder, cache = build.folder / "sources", Cache.here()
        kept = {sources.labelled(name): folder / file for name, file in build.kept.items()}
        files = {path: file.read_bytes() for path, file in kept.items()}
        return cls(recipe, files, _compilers(recipe.target, cache), cache, {}, _environment(), {})

    @cached_property
    def build(self) -> Build | None:
        """The build of remembered inputs, which is whole; else None."""
        return None

    def plain(self) -> Inputs:
        """The same without instrumentation for lab.check."""
        return replace(self, recipe=replace(self.recipe, check=False, trace=False))

    def are_current(self) -> bool:
        """Whether all files, and the places where there were none, are still as they were read.

        So must be the environment variables that compilers read.

        A file's content is compared if its stat has changed. It is also compared if the file was
        changed so shortly before it was read (or, after the clock went back, in the future) that
        another change could have left the same stat.
        """
        if self.environment != _environment():
            return False
        for place, before in self.stats.items():
            now = _stat(place)
            if now == before and (now is None or now.is_settled):
                continue
            if (
                now is None
                or before is None
                or not self._is_as_read(place, now[:-1] == before[:-1])
            ):
                return False
            self.stats[place] = now
        return True

    def _is_as_read(self, place: str, is_dated_alike: bool) -> bool:
        """Whether a file's content is unchanged; for files that are only searched for, its date."""
        try:
            if (path := Path(place)) in self.files:
                return path.read_bytes() == self.files[path]
            if self.named.get(place):
                return _content(place) == self.named[place]
        except OSError:
            return False
        return is_dated_alike

    def know_all_noted(self) -> bool:
        """Whether these are all inputs that any process has noted by now."""
        return all(map(self.stats.__contains__, _noted(self.recipe, self.cache)))

    def in_order(self) -> list[Path]:
        """The sources, then the headers."""
        return [*self.recipe.sources, *sorted(self.files.keys() - set(self.recipe.sources))]

    def note(self, headers: set[Path]) -> None:
        """Note that these headers are inputs of the recipe, from now on."""
        known = {*headers, *map(Path, _noted(self.recipe, self.cache))}
        labels = sorted(map(label, known))  # other clones have the same recipe
        write_note(_note(self.recipe, self.cache.own), {"headers": labels})

    def require_compilers(self) -> None:
        """Raises: MissingTool, if they are remembered but no longer there."""
        machine.compiler_versions(self.recipe.target, self.cache.own / "compilers")

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that differ whenever the library's bytes might."""
        recipe = self.recipe
        files = [part for p in sorted(self.files) for part in (label(p), self.files[p])]
        files += [part for named in sorted(self.named.items()) for part in named]
        return digest_of(str(LAYOUT), recipe.key, recipe.formulas, *self._tools, *files)[:16]

    @property
    def settings(self) -> str:
        """The digest of all that decides a compiler's output, apart from the files."""
        return digest_of(str(LAYOUT), self.recipe.key, *self._tools)

    @cached_property
    def _tools(self) -> list[str]:
        recipe, (cxx, nvcc) = self.recipe, self.flags
        native = any(flag.endswith("=native") for flag in cxx)
        made_for = machine.cpu() if native else platform.machine()
        python = f"{sys.implementation.cache_tag} {torch.__version__}"
        tools = [self.compilers, made_for, python, *cxx, "|", *nvcc]
        tools += [f"{name}={value}" for name, value in self.environment.items()]
        if recipe.target == "cpu":
            tools.append(_simulators_digest())
        if self.cccl:
            tools.append(f"CCCL {self.cccl[1]}")
        return tools

    @property
    def name(self) -> str:
        """The extension's name: TORCH_EXTENSION_NAME, namespace, and folder in the cache."""
        return f"{self.recipe.identifier}_{self.digest}"


def _compilers(target: str, cache: Cache) -> str:
    """The compilers' version texts; if they are gone, those when last seen.

    So builds in the cache can be used without their compilers.
    """
    note = Path("compilers", f"{target}_{digest_of(machine.cxx())[:16]}")
    try:
        versions = machine.compiler_versions(target, cache.own / "compilers")
    except MissingTool:
        for folder in cache.folders:
            if known := read_note(folder / note):
                return known["said"]
        raise
    if read_note(cache.own / note) != {"said": versions}:
        with contextlib.suppress(OSError):  # a full disk; the build may be cached already
            write_note(cache.own / note, {"said": versions})
    return versions


def _environment() -> dict[str, str]:
    """The environment variables that compilers read."""
    return {name: os.environ[name] for name in READ_BY_COMPILERS if name in os.environ}


def _folders_named_in(flags: Sequence[str], environment: dict[str, str]) -> list[Path]:
    """The header folders that flags and the environment name for compilers.

    Those of -I are in the recipe. Relative folders are left out: they would be the build's.
    """
    options = ("-iquote", "-isystem", "--system-include", "-idirafter")
    folders = [folder for option in options for folder in sources.folders_in(flags, option)]
    values = (environment.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH"))
    folders += [Path(folder) for value in values for folder in value.split(os.pathsep)]
    return [folder for folder in folders if folder.is_absolute() and not is_systems(folder)]


def _content(place: str) -> str:
    """A digest of a file that compilers or the linker read; "" for a shared library, which is
    opened only with the kernel."""
    return digest_of(Path(place).read_bytes()) if named_files.is_linked_in(place) else ""


@cache
def _simulators_digest() -> str:
    """The digest of the simulator and of what rewrites sources, computed once per process."""
    suffixes = {".py", ".cpp", ".h", ".cuh", ""}  # <cuda/barrier> has none
    parts = (p for p in sorted(SIMULATOR.rglob("*")) if p.suffix in suffixes and p.is_file())
    return digest_of(*(part.read_bytes() for part in parts))


def _note(recipe: Recipe, folder: Path) -> Path:
    return folder / "headers" / f"{recipe.name}_{recipe.key}.json"


def _noted(recipe: Recipe, cache: Cache) -> list[str]:
    notes = (read_note(_note(recipe, folder)) for folder in cache.folders)
    return [str(sources.labelled(header)) for note in notes if note for header in note["headers"]]


def formulas_of(path: Path) -> str:
    """Digest of a Python file's code; comments and docstrings do not count.

    Parsing takes longer than the rest of a warm load, so the cache keeps the digest.
    """
    try:
        text = path.read_bytes()
    except OSError:
        return ""
    note = Cache.here().own / "formulas" / f"{path.stem}_{digest_of(str(path))[:16]}.json"
    parsed = digest_of(sys.implementation.cache_tag, text)
    known = read_note(note)
    if known and known["of"] == parsed:
        return known["digest"]
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    digest = digest_of(ast.dump(tree))
    with contextlib.suppress(OSError):  # a full disk
        write_note(note, {"of": parsed, "digest": digest})
    return digest
