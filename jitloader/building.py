"""The build of what a recipe's files hold now: from the cache, or compiled."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import torch

from jitloader import tracebacks
from jitloader.builds import Build, Builds
from jitloader.cache import Cache
from jitloader.events import announced
from jitloader.inputs import Inputs
from toolchain.code import Recipe
from toolchain.errors import CompileError
from toolchain.notes import digest_of
from toolchain.sources import label

_building = threading.Lock()  # cpp_extension keeps its state in its module: one build at a time
_failures: dict[str, CompileError] = {}  # by digest: the same sources fail the same way


def readings(recipe: Recipe, cache: Cache | None = None) -> Iterator[Inputs]:
    """What the recipe's files hold, read anew as often as `build_of` finds it outdated.

    Raises:
        RuntimeError: that was so ten times.
    """
    for _ in range(10):
        yield Inputs.read(recipe, cache or Cache.here())
    raise RuntimeError(f"the sources of {recipe.name} change faster than they compile: load again")


def ensure(recipe: Recipe, cache: Cache | None = None) -> Build:
    """The build of what the recipe's files hold now; compiled if there is none."""
    return next(filter(None, map(build_of, readings(recipe, cache))))


def build_of(inputs: Inputs) -> Build | None:
    """The build of these inputs, compiled if there is none.

    None where they are not what the compiler reads: a file has changed meanwhile, or it has read a
    header that only its depfile told of.

    Raises:
        CompileError: they do not compile.
        MissingTool: there is no compiler.
        OSError: the disk is full.
    """
    if build := _cached(inputs):
        return build
    if inputs.digest in _failures:
        raise _failures[inputs.digest].with_traceback(None)
    try:
        inputs.registrations  # noqa: B018 - refuses names that no build can have
        inputs.require_compilers()
        with _building, inputs.cache.lock(inputs.name) as alone:
            # Another process may just have built it, or found in doing so what more it reads.
            if build := _cached(inputs):
                return build
            if inputs.are_current() and inputs.know_all_noted():
                return _build(inputs, alone)
    except KeyboardInterrupt as stop:
        tracebacks.in_one_line(stop, f"the build of {inputs.recipe.name} was interrupted")
        raise
    except CompileError as error:
        if error.of_machine:
            raise
        if inputs.are_current():
            _failures[inputs.digest] = error
            raise
    return None


def builds_of(recipe: Recipe) -> Builds:
    """Every build of a recipe in the cache, newest first."""
    found: dict[str, Build] = {}
    for folder in Cache.here().folders:
        for build in map(Build.read, folder.glob(f"{recipe.identifier}_*/")):
            if build and build.recipe == recipe.key:
                found.setdefault(build.name, build)
    return Builds(sorted(found.values(), key=lambda v: (v.order, v.when), reverse=True))


def _cached(inputs: Inputs) -> Build | None:
    for folder in inputs.cache.folders:
        build = Build.read(folder / inputs.name)
        if build and inputs.cache.trusts(build.folder) and build.is_whole():
            build.used()
            return build
    return None


def _build(inputs: Inputs, alone: bool) -> Build | None:
    """Compile in a private folder, then let the result appear in the cache at once."""
    try:
        with inputs.cache.workplace(inputs.name, alone) as work:
            return _build_in(work, inputs)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            error.errno,
            f"the disk of the cache folder is full while building {inputs.recipe.name}: free some"
            " space (`python -m jitload prune`), or set JITLOAD_CACHE to a folder on another disk",
            str(inputs.cache.own),
        ) from error


def _build_in(work: Path, inputs: Inputs) -> Build | None:
    from jitloader import objects  # late: a warm load does without
    from toolchain.compile import compile_library

    recipe, name = inputs.recipe, inputs.name
    started = time.perf_counter()
    shown = f"{recipe.name}{' (for lab.check)' * recipe.check}"
    with announced(shown, recipe.target, inputs.notes, inputs.expected) as progress:
        log = inputs.cache.own / "logs" / f"{name}.log"
        earlier = objects.earlier(inputs)
        compiled = compile_library(inputs, name, work, log, progress, earlier)
    if unknown := compiled.read - inputs.files.keys():
        inputs.note(unknown)
        if Inputs.read(recipe, inputs.cache).digest != inputs.digest:
            return None  # it would stand in the cache under a digest that is not its own
    if not inputs.are_current():
        return None
    result = work / "result"
    (result / "sources").mkdir(parents=True)
    library = result / f"{name}.so"
    shutil.move(work / library.name, library)
    (result / "log").write_text(compiled.output, "utf-8")
    kept = {path: f"{n}_{path.name[-50:]}" for n, path in enumerate(inputs.in_order())}
    for path, file in kept.items():
        (result / "sources" / file).write_bytes(inputs.files[path])
    build = Build(
        digest=inputs.digest,
        when=datetime.fromtimestamp(time.time()),
        seconds=round(time.perf_counter() - started, 3),
        target=recipe.target,
        order=1 + max((v.order for v in builds_of(recipe)), default=0),
        folder=inputs.cache.own / name,
        recipe=recipe.key,
        binding=inputs.binding,
        exports=inputs.exports,
        aliases=inputs.registrations.aliases,
        notes=inputs.notes,
        torch=torch.__version__,
        kept={label(path): file for path, file in kept.items()},
        inputs={label(path): digest_of(data) for path, data in sorted(inputs.files.items())},
        libraries=compiled.libraries,
        library_sha256=hashlib.sha256(library.read_bytes()).hexdigest(),
    )
    build.write(result)
    inputs.cache.place(result, name)
    objects.keep(inputs, compiled.objects, work)
    return build


def _renew_lock() -> None:
    """In a forked process nobody else is left to release it."""
    global _building
    _building = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
