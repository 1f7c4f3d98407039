"""The build of what a recipe's files hold now: from the cache, or compiled."""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from jitloader import tracebacks
from jitloader.builds import Build, Builds
from jitloader.cache import UNAWAITED, Cache, free_in_child
from jitloader.inputs import Inputs
from jitloader.remembered import remember, remembered
from toolchain.code import SIMULATOR, Recipe
from toolchain.errors import NO_PROCESS_LEFT, CompileError
from toolchain.notes import digest_of
from toolchain.sources import label

if TYPE_CHECKING:
    from toolchain.kernel_fatbins import OnDemand
    from toolchain.parts import Deferred
    from toolchain.precompiled import Parsed

# One build at a time, except those in the background, and the simulator's libraries, each with a
# lock of its own.
_building = free_in_child(threading.Lock())
_building_beside: dict[str, threading.Lock] = {}  # by the library's name
# By digest: the same sources fail the same way, as long as what they lacked is still missing.
_failures: dict[str, tuple[Inputs, CompileError]] = {}


def readings(recipe: Recipe, cache: Cache | None = None) -> Iterator[Inputs]:
    """The inputs of a recipe, read from its files again whenever `build_of` finds them outdated.

    Raises:
        RuntimeError: they were outdated ten times.
    """
    cache = cache or Cache.here()
    if inputs := remembered(recipe, cache):
        yield inputs
    for _ in range(10):
        yield Inputs.read(recipe, cache)
    raise RuntimeError(f"the sources of {recipe.name} change faster than they compile: load again")


def ensure(recipe: Recipe, cache: Cache | None = None) -> Build:
    """The build of the recipe's files as they are now; compiled if there is none."""
    return next(filter(None, map(build_of, readings(recipe, cache))))


def build_of(inputs: Inputs) -> Build | None:
    """The build of these inputs, compiled if there is none.

    None if they are not what the compiler reads: a file has changed meanwhile, or the compiler read
    a header that only its depfile names.

    Raises:
        CompileError: they do not compile.
        MissingTool: there is no compiler.
        OSError: the disk is full.
    """
    if build := cached(inputs):
        return build
    failed, error = _failures.get(inputs.digest, (None, None))
    if failed and failed.are_current():
        raise error.with_traceback(None)
    try:
        inputs.registrations  # noqa: B018 - refuses names that no build can have
        inputs.require_compilers()
        with stoppable(inputs), _lock_of(inputs), inputs.cache.lock(inputs.name) as alone:
            # Another process may just have built it, or found further headers that it reads.
            if build := cached(inputs):
                return build
            if inputs.are_current() and inputs.know_all_noted():
                return _build(inputs, alone)
    except BlockingIOError:  # a compiler could not be started to query it
        raise CompileError(NO_PROCESS_LEFT, of_machine=True) from None
    except CompileError as error:
        if error.of_machine:
            raise
        if inputs.are_current():
            _failures[inputs.digest] = inputs, error
            raise
    return None


def builds_of(recipe: Recipe) -> Builds:
    """Every build of a recipe in the cache, newest first."""
    builds: dict[str, Build] = {}
    for folder in Cache.here().folders:
        for build in map(Build.read, folder.glob(f"{recipe.identifier}_*/")):
            if build and build.recipe == recipe.key:
                builds.setdefault(build.name, build)
    return Builds(sorted(builds.values(), key=lambda v: (v.order, v.when), reverse=True))


def linked(inputs: Inputs, deferred: Deferred | OnDemand, first: str = "") -> Build | None:
    """A build in parts, whose first parts are the builds named in `first`.

    None if more than those would have to be compiled.
    """
    with stoppable(inputs), _building, inputs.cache.lock(inputs.name) as alone:
        return cached(inputs, in_parts=True) or _build(inputs, alone, deferred, first)


def completed(inputs: Inputs, lifeline: int) -> None:
    """Compile the whole of a build that is there in parts, on an otherwise idle processor.

    No other build waits for it: its lock has a name that no other build uses.

    lifeline: as of `compile_library`.
    """
    name = f"{inputs.name}{UNAWAITED}"
    with inputs.cache.lock(name, wait=False) as alone:
        if alone and not cached(inputs):
            with inputs.cache.workplace(name, alone) as work:
                _build_in(work, inputs, lifeline=lifeline)


@contextlib.contextmanager
def stoppable(inputs: Inputs) -> Iterator[None]:
    """Have an interrupt say which build it stopped."""
    try:
        yield
    except KeyboardInterrupt as stop:
        tracebacks.in_one_line(stop, f"the build of {inputs.recipe.name} was interrupted")
        raise


def cached(inputs: Inputs, in_parts: bool = False) -> Build | None:
    """The cached build of these inputs; in_parts: also one that is in parts."""
    if inputs.build:
        inputs.build.used()
        return inputs.build
    for folder in inputs.cache.folders:
        build = Build.read(folder / inputs.name)
        if build is None or (build.launchers and not in_parts):
            continue
        if inputs.cache.trusts(build.folder) and build.is_whole():
            build.used()
            remember(inputs, build)
            return build
    return None


def _build(
    inputs: Inputs, alone: bool, deferred: Deferred | OnDemand | None = None, first: str = ""
) -> Build | None:
    """Compile in a private folder, then move the result into the cache atomically."""
    try:
        with inputs.cache.workplace(inputs.name, alone) as work:
            return _build_in(work, inputs, deferred, first)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            error.errno,
            f"the disk of the cache folder is full while building {inputs.recipe.name}: free some"
            " space (`python -m jitload prune`), or set JITLOAD_CACHE to a folder on another disk",
            str(inputs.cache.own),
        ) from error


def _build_in(
    work: Path,
    inputs: Inputs,
    deferred: Deferred | OnDemand | None = None,
    first: str = "",
    lifeline: int | None = None,
) -> Build | None:
    with _uncollected():
        from jitloader import kept_objects  # late: a warm load does not need it
        from jitloader.events import announced, note
        from toolchain.compile import compile_library
        from toolchain.errors import warnings_of
        from toolchain.kernel_fatbins import OnDemand

    recipe, name = inputs.recipe, inputs.name
    started = time.perf_counter()
    variant = [*recipe.flags, *["for lab.check"] * recipe.check]
    shown = f"{recipe.name} ({', '.join(variant)})" if variant else recipe.name
    report = announced(shown, recipe.target, inputs.notes, inputs.expected)
    if deferred or lifeline is not None:
        report = contextlib.nullcontext(_unheard)
    with report as progress:
        log = inputs.cache.own / "logs" / f"{name}.log"
        on_demand = deferred if isinstance(deferred, OnDemand) else None
        earlier = kept_objects.earlier(inputs, on_demand)
        compiled = compile_library(inputs, name, work, log, progress, earlier, lifeline, deferred)
        warned = warnings_of(compiled.output, inputs.files) if compiled else []
        note(warned)
    if compiled is None:
        return None
    if unknown := compiled.read - inputs.files.keys():
        if recipe.part:
            return None
        inputs.note(unknown)
        if Inputs.read(recipe, inputs.cache).digest != inputs.digest:
            return None  # it would be in the cache under a wrong digest
    if not inputs.are_current():
        return None
    result = work / "result"
    (result / "sources").mkdir(parents=True)
    made = [work / f"{name}.so", *filter(None, [compiled.image])]
    data = b"".join(path.read_bytes() for path in made if path.exists())
    for path in made:
        if path.exists():
            shutil.move(path, result / path.name)
    for part in filter(None, (Build.read(inputs.cache.own / name) for name in first.split())):
        if part.exports["of_host"]:  # several builds share this library, with other kernels
            shutil.copy(part.library, result)
    (result / "log").write_text(compiled.output, "utf-8")
    kept = {path: f"{n}_{path.name[-50:]}" for n, path in enumerate(inputs.in_order())}
    for path, file in kept.items():
        (result / "sources" / file).write_bytes(inputs.files[path])
    begun = cached(inputs, in_parts=True)
    build = Build(
        digest=inputs.digest,
        when=begun.when if begun else datetime.fromtimestamp(time.time()),
        seconds=round(time.perf_counter() - started, 3),
        target=recipe.target,
        order=begun.order if begun else 1 + max((v.order for v in builds_of(recipe)), default=0),
        folder=inputs.cache.own / name,
        recipe=recipe.key,
        binding=inputs.binding,
        exports=inputs.exports,
        aliases=inputs.registrations.aliases,
        notes=[*inputs.notes, *warned],
        torch=torch.__version__,
        kept={label(path): file for path, file in kept.items()},
        inputs={label(path): digest_of(data) for path, data in sorted(inputs.files.items())},
        libraries=compiled.libraries,
        library_sha256=hashlib.sha256(data).hexdigest(),
        launchers=deferred.functions
        if deferred and not on_demand
        else {it: [] for it in compiled.kernels},
        first=first,
    )
    build.write(result)
    inputs.cache.place(result, name)
    kept_objects.keep(inputs, compiled.objects, work, on_demand)
    here = torch.cuda.is_available() if recipe.target == "cuda" else inputs.includes_torch
    if here:
        from toolchain import precompiled

        text = (work / "build.ninja").read_text()
        for missing in precompiled.missing(text, inputs, earlier.precompiled):
            parse_beside(missing, inputs.cache)
    return build


def parse_beside(parsed: Parsed, cache: Cache) -> None:
    """Have headers parsed in the background, unless some process does so already."""
    from jitloader import background  # late, too
    from toolchain import precompiled

    name = f"precompiled_{parsed.place.name}{UNAWAITED}"

    def parse(lifeline: int) -> None:
        with cache.lock(name, wait=False) as alone:
            if alone:
                with cache.workplace(name, alone) as work:
                    precompiled.make_aside(parsed, work, lifeline)

    background.start_beside(name, parse)


def _lock_of(inputs: Inputs) -> threading.Lock:
    if inputs.recipe.sources[0].is_relative_to(SIMULATOR):
        return _building_beside.setdefault(inputs.recipe.name, free_in_child(threading.Lock()))
    return _building


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """In this block the garbage collector is off: imports leave no garbage, and a full collection
    takes 80 ms to go through PyTorch's objects."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _unheard(stage: str) -> None:
    """Ignore the progress of a build that is not reported."""
