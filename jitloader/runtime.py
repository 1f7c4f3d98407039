"""The simulator's runtime: one a process, opened before any kernel for the CPU, which needs it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import simulator
from jitloader import events, guards, stops
from jitloader.building import cached, ensure, readings
from jitloader.builds import Build
from jitloader.cache import ENVIRONMENT, Cache
from toolchain import machine
from toolchain.code import Recipe
from toolchain.errors import CompileError

_take_error: Callable[[], bytes | None] | None = None


def recipe(name: str = "simulator", source: Path = simulator.RUNTIME) -> Recipe:
    return Recipe(
        name=name,
        sources=(source,),
        include=(simulator.INCLUDE,),
        flags=("-fvisibility=hidden",),  # it marks what kernels call
        target="cpu",
        debug=False,
    )


def checker_recipe() -> Recipe:
    return _recipe_of(simulator.CHECKER)


def tracer_recipe() -> Recipe:
    return _recipe_of(simulator.TRACER)


def further_recipes() -> list[Callable[[], Recipe]]:
    """What makes the recipes of the libraries that single kernels need."""
    return [functools.partial(_recipe_of, source) for source in simulator.LIBRARIES.values()]


def _recipe_of(source: Path) -> Recipe:
    return recipe(f"simulator_{source.stem}", source)


def libraries(program: Build, checked: bool = False) -> list[Path]:
    """What a program for the CPU needs opened before it, for all to use, in this order.

    checked: it is instrumented.
    """
    checkers = [_built(checker_recipe())] if checked else []
    needed = [_runtime(), *checkers, *map(_build_of, program.libraries)]
    return [build.library for build in needed]


def ensure_with_runtime(wanted: Recipe) -> Build:
    """The build of a recipe, and for the CPU that of the runtime; compiled if there is none."""
    if wanted.target == "cpu":
        ensure(recipe())
    return ensure(wanted)


@functools.cache
def library() -> ctypes.CDLL:
    """The library on which kernels for the CPU run."""
    opened = _opened(_runtime)
    guards.start(opened, stops.line_of)
    return opened


def open_libraries(build: Build) -> None:
    """Open what a build calls besides: those of simulator.LIBRARIES whose headers it includes."""
    for header in build.libraries:
        _library_of(header)


@functools.cache
def checker() -> ctypes.CDLL:
    """The library that watches kernels under check, and that these call."""
    library()
    return _opened(functools.partial(_built, checker_recipe()))


def ensure_checker() -> Build:
    """That library's build; compiled if there is none, and not opened."""
    return ensure(checker_recipe())


@functools.cache
def tracer() -> ctypes.CDLL:
    """The library that records what kernels do for lab.trace, which they call."""
    checker()
    return _opened(functools.partial(_built, tracer_recipe()))


@functools.cache
def _library_of(header: str) -> ctypes.CDLL:
    return _opened(functools.partial(_build_of, header))


class _Beside(threading.Thread):
    """A build in a thread of its own. What fails there, `ensure` raises again."""

    def __init__(self, recipe: Recipe):
        super().__init__(name=f"jitload {recipe.name}", daemon=True)
        self.recipe, self.stage = recipe, str

    def run(self) -> None:
        with events.unreported() as self.stage, contextlib.suppress(Exception):
            ensure(self.recipe)

    def wait(self) -> None:
        """Wait, as for a build that this thread makes."""
        if self.is_alive():
            with events.announced(self.recipe.name, "cpu") as progress:
                while self.is_alive():
                    progress(self.stage())
                    self.join(0.25)


_beside: dict[str, _Beside] = {}  # by the recipe's name


def build_beside(with_checker: bool = False) -> None:
    """Have the libraries compiled that are not, while this thread compiles what needs them."""
    recipes = {library: recipe()}
    if with_checker:
        recipes[checker] = checker_recipe()
    for opened, wanted in recipes.items():
        if opened.cache_info().currsize or wanted.name in _beside:
            continue
        if not cached(next(readings(wanted))):
            _beside[wanted.name] = _Beside(wanted)
            _beside[wanted.name].start()


os.register_at_fork(after_in_child=_beside.clear)  # where nobody goes on with them


def build_for_environment() -> None:
    """Compile the runtime into the Python environment, as set-up does: caches find it there.

    So do they PyTorch's headers for bindings for a GPU, parsed, where there is nvcc.

    What an earlier release or compiler left there goes after a month.
    """
    cache = Cache(ENVIRONMENT)
    ensure(recipe(), cache)
    if machine.cuda_home():
        parse_for_bindings(cache)
    cache.prune(gigabytes=1, days=30)


def parse_for_bindings(cache: Cache) -> None:
    """Have PyTorch's stable headers parsed for the bindings of kernels for a GPU."""
    from toolchain import precompiled  # late: a warm load does without

    source = precompiled.FOR_SET_UP
    ensure(Recipe(source.stem, (source,), (), (), "cuda", debug=False), cache)


def _runtime() -> Build:
    return _built(recipe())


def _built(wanted: Recipe) -> Build:
    if beside := _beside.pop(wanted.name, None):
        beside.wait()
    build = ensure(wanted)
    Cache.here().use(build.folder)
    return build


def _build_of(header: str) -> Build:
    source = simulator.LIBRARIES[header]
    try:
        return _built(_recipe_of(source))
    except CompileError as error:
        raise CompileError(
            f"the simulator's library for <{header}> does not compile here: {error.message}",
            path=error.path,
            line=error.line,
            column=error.column,
            hint="such a library is compiled with the headers that come with torch, 2.11 or later",
            log=error.log,
            of_machine=error.of_machine,
        ) from None


def _opened(built: Callable[[], Build]) -> ctypes.CDLL:
    """The library of a build, with global symbols."""
    while True:
        build = built()
        try:
            return ctypes.CDLL(str(build.library), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            if build.library.exists():
                raise  # else another process has just pruned it


def start() -> None:
    global _take_error
    if _take_error is None:
        stops.listen(library())
        _take_error = library().simulator_take_error
        _take_error.restype = ctypes.c_char_p


def check(tensors: Callable[[], guards.Named] = tuple) -> None:
    """Raise what a kernel did wrong (a deadlock, a refused launch) and nobody asked about.

    tensors: what the call was given, for an error to name.
    """
    message = _take_error()
    if message:
        raise RuntimeError(guards.explained(message.decode(errors="replace"), tensors()))


def surviving(library: ctypes.CDLL, function: Any) -> Callable[..., str]:
    """A function of the host on the simulator, so called that the process survives what it does.

    Called, it returns what would have ended the process, with the line; "" where nothing did.
    """
    start()
    entered = guards.entry(library, function)

    def call(*args: object) -> str:
        entered(*args)
        error = _take_error() or b""
        return guards.explained(error.decode()) if error.startswith(b"the host's code: ") else ""

    return call


def simulated_launches() -> int:
    """How many kernels the simulator has launched in this process.

    Asked before a call and after it, this tells whether the call ran on the simulator.
    """
    if _take_error is None:  # nothing has been opened that could launch
        return 0
    launches = library().simulator_launches
    launches.restype = ctypes.c_uint64
    return launches()
