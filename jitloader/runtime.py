"""The simulator's runtime, which each process opens once, before any kernel for the CPU."""

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
        flags=("-fvisibility=hidden",),  # its exported functions are marked
        target="cpu",
        debug=False,
    )


def checker_recipe() -> Recipe:
    return _recipe_of(simulator.CHECKER)


def tracer_recipe() -> Recipe:
    return _recipe_of(simulator.TRACER)


def further_recipes() -> list[Callable[[], Recipe]]:
    """Functions that make the recipes of the libraries that only some kernels need."""
    return [functools.partial(_recipe_of, source) for source in simulator.LIBRARIES.values()]


def _recipe_of(source: Path) -> Recipe:
    return recipe(f"simulator_{source.stem}", source)


def libraries(program: Build, checked: bool = False) -> list[Path]:
    """The libraries to open before a program for the CPU, with global symbols, in order.

    checked: whether the program is instrumented.
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
    """The library that runs kernels for the CPU."""
    opened = _opened(_runtime)
    guards.start(opened, stops.line_of)
    return opened


def open_libraries(build: Build) -> None:
    """Open further libraries of a build: those of simulator.LIBRARIES whose headers it includes."""
    for header in build.libraries:
        _library_of(header)


@functools.cache
def checker() -> ctypes.CDLL:
    """The checker's library, which instrumented kernels call."""
    library()
    return _opened(functools.partial(_built, checker_recipe()))


def ensure_checker() -> Build:
    """The build of the checker's library, compiled if there is none, but not opened."""
    return ensure(checker_recipe())


@functools.cache
def tracer() -> ctypes.CDLL:
    """The tracer's library, which kernels call to record what they do for lab.trace."""
    checker()
    return _opened(functools.partial(_built, tracer_recipe()))


@functools.cache
def _library_of(header: str) -> ctypes.CDLL:
    return _opened(functools.partial(_build_of, header))


class _Beside(threading.Thread):
    """A build in a thread of its own. If it fails, `ensure` raises the error again."""

    def __init__(self, recipe: Recipe):
        super().__init__(name=f"jitload {recipe.name}", daemon=True)
        self.recipe, self.stage = recipe, str

    def run(self) -> None:
        with events.unreported() as self.stage, contextlib.suppress(Exception):
            ensure(self.recipe)

    def wait(self) -> None:
        """Wait, and report progress as for a build of this thread."""
        if self.is_alive():
            with events.announced(self.recipe.name, "cpu") as progress:
                while self.is_alive():
                    progress(self.stage())
                    self.join(0.25)


_beside: dict[str, _Beside] = {}  # by the recipe's name


def build_beside(with_checker: bool = False) -> None:
    """Start compiling missing libraries, while this thread compiles what needs them."""
    recipes = {library: recipe()}
    if with_checker:
        recipes[checker] = checker_recipe()
    for opened, wanted in recipes.items():
        if opened.cache_info().currsize or wanted.name in _beside:
            continue
        if not cached(next(readings(wanted))):
            _beside[wanted.name] = _Beside(wanted)
            _beside[wanted.name].start()


os.register_at_fork(after_in_child=_beside.clear)  # these threads do not run in the child


def build_for_environment() -> None:
    """Compile the runtime into the Python environment during set-up: all caches search there.

    If there is nvcc, precompile PyTorch's headers for GPU bindings there, too.

    Builds of earlier releases or compilers are removed after a month.
    """
    cache = Cache(ENVIRONMENT)
    ensure(recipe(), cache)
    if machine.cuda_home():
        parse_for_bindings(cache)
    cache.prune(gigabytes=1, days=30)


def parse_for_bindings(cache: Cache) -> None:
    """Precompile PyTorch's stable headers for the bindings of GPU kernels."""
    from toolchain import precompiled  # late: a warm load does not need it

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
    """The opened library of a build, with global symbols."""
    while True:
        build = built()
        try:
            return ctypes.CDLL(str(build.library), mode=ctypes.RTLD_GLOBAL)
        except OSError:
            if build.library.exists():
                raise  # if not, another process has just pruned it


def start() -> None:
    global _take_error
    if _take_error is None:
        stops.listen(library())
        _take_error = library().simulator_take_error
        _take_error.restype = ctypes.c_char_p


def check(tensors: Callable[[], guards.Named] = tuple) -> None:
    """Raise a kernel's error (a deadlock, a refused launch) that no code has read.

    tensors: returns the tensors of the call, which the error may name.
    """
    message = _take_error()
    if message:
        raise RuntimeError(guards.explained(message.decode(errors="replace"), tensors()))


def surviving(library: ctypes.CDLL, function: Any, arguments: int) -> Callable[..., str]:
    """A wrapper of a host function on the simulator: the process survives the function's errors.

    It returns the error that would have ended the process, with the line, or "".
    """
    start()
    entered = guards.entry(library, function, arguments)

    def call(*args: object) -> str:
        entered(*args)
        error = _take_error() or b""
        return guards.explained(error.decode()) if error.startswith(b"the host's code: ") else ""

    return call


def simulated_launches() -> int:
    """How many kernels the simulator has launched in this process.

    Read before and after a call, the count tells whether the call ran on the simulator.
    """
    if _take_error is None:  # no library that could launch is open
        return 0
    launches = library().simulator_launches
    launches.restype = ctypes.c_uint64
    return launches()
