"""After an edit, launchers and kernels are compiled one by one, when they are called.

A build in parts (`toolchain.parts`) takes the place of a whole one if an edit has not changed the
bindings. `load` compiles the functions that were called before the edit, so that their errors are
raised at once. Any other function is compiled when it is called, and the call waits only for that.
Then the called launchers are compiled in the background, without kernels, so that a later edit of
a kernel compiles only that kernel. Last comes the whole build, which the cache keeps and later
processes open. If it does not compile, the next call warns of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import torch

from jitloader import background, kept_objects, runtime
from jitloader.building import build_of, cached, completed, linked
from jitloader.builds import Build
from jitloader.cache import Cache, free_in_child
from jitloader.cfunctions import CFunction
from jitloader.events import reported_as_one
from jitloader.inputs import Inputs
from toolchain import parts
from toolchain.code import Recipe
from toolchain.errors import CompileError, demangled, hint_for
from toolchain.notes import read_note, write_note
from toolchain.parts import DeferredFunction

_Find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))


def begun(inputs: Inputs) -> Build | None:
    """A build of these inputs in parts, with its first part compiled.

    None if `build_of` has to compile them whole, or has to say why they do not compile.
    """
    deferred = kept_objects.deferred(inputs)
    if deferred is None:
        return None
    for functions in (deferred.functions, parts.with_kernels(deferred.functions)):
        called = [name for name in called_before(inputs) if name in functions]
        try:
            first = _first_parts(inputs, functions, called)
            if first is not None:
                in_parts = deferred._replace(functions=functions)
                return linked(inputs, in_parts, " ".join(part.name for part in first))
        except CompileError:
            continue  # the edit may have removed a kernel
    return None


def _first_parts(
    inputs: Inputs, functions: Mapping[str, DeferredFunction], called: Sequence[str]
) -> list[Build] | None:
    """The libraries with functions that were called before. If only kernels have changed since the
    launchers were compiled, one is the library of the launchers.

    None if the inputs are no longer what the compiler reads.
    """
    launchers = parts.without_kernels(functions, called)
    host = cached(kept_objects.host_part_of(inputs, functions, launchers)) if launchers else None
    left = [name for name in called if host is None or name not in launchers]
    rest = _part(inputs, inputs.name, functions, left) if left or host is None else None
    if rest is None and (left or host is None):
        return None
    return [part for part in (host, rest) if part]


def _part(
    inputs: Inputs, build: str, functions: Mapping[str, DeferredFunction], wanted: Sequence[str]
) -> Build | None:
    """The library with some functions of a build, compiled if there is none.

    Returns and raises as `build_of` does.
    """
    part = kept_objects.part_of(inputs, build, functions, wanted)
    try:
        return build_of(part)
    except CompileError as error:
        if (left := kept_objects.without_aliases(part, output_of(error))) is None:
            raise
        return build_of(left)


def output_of(error: CompileError) -> str:
    """The compilers' whole output."""
    return error.log.read_text("utf-8", errors="replace") if error.log else ""


def complete(inputs: Inputs) -> None:
    """For a build that is open in parts, start the whole build in the background."""
    launchers = _open.get(inputs.name)
    if launchers and launchers.broken is None:
        background.start(inputs.name, partial(_completed, inputs), launchers.fail)


def _completed(inputs: Inputs, lifeline: int) -> None:
    """Compile a library of the launchers that were called, and then the whole build."""
    deferred = kept_objects.deferred(inputs)
    if deferred:
        launchers = parts.without_kernels(deferred.functions, called_before(inputs))
        with contextlib.suppress(CompileError):  # the whole build raises it, too
            if launchers:
                completed(
                    kept_objects.host_part_of(inputs, deferred.functions, launchers), lifeline
                )
    if not background.is_over(lifeline):
        completed(inputs, lifeline)


def opened(launchers: Launchers) -> Launchers:
    """Register the launchers of a build in parts, whose library was just opened."""
    _open[launchers.name] = launchers
    return launchers


def output_of_parts(build: Build) -> str:
    """The compilers' output so far for a build that is open in parts."""
    launchers = _open.get(build.name)
    return "".join(part.log() for part in [build, *(launchers.parts if launchers else ())])


def whole(build: Build, recipe: Recipe) -> Build:
    """The whole build of the same files; a build that is in parts is compiled whole."""
    if not build.launchers:
        return build
    background.stop()
    return build_of(Inputs.kept(recipe, build)) or build


_open: dict[str, Launchers] = {}  # by the names of their builds


class Launchers:
    """The launchers of an open build in parts.

    Attributes:
        name: the build's name.
        broken: why the whole build does not compile.
        parts: the parts that were compiled since it was opened.
    """

    def __init__(self, build: Build, recipe: Recipe):
        self.broken: CompileError | None = None
        self.name = build.name
        self._build = build
        self._inputs = Inputs.kept(recipe, build)
        self.parts: list[Build] = []
        self._called: list[str] = []
        self._finding = free_in_child(threading.RLock())
        self._raised = threading.local()  # .error: why a launcher could not be found
        self._on_part: Callable[[Build], None] = lambda part: None
        self._warned = False
        self._open_library()

    def _open_library(self) -> None:
        """Open the build's library, and have it call here for functions that it lacks."""
        build = self._build
        self._functions = {name: DeferredFunction(*each) for name, each in build.launchers.items()}
        self._addresses: dict[str, int] = {}
        self._finding_for_c: list[_Find] = []  # one for each library, kept because it calls it
        for name in build.first.split():
            first = Build.read(build.folder.with_name(name))
            if first and first.is_whole() and self._inputs.cache.trusts(first.folder):
                self._add(first)
        self._answer(ctypes.CDLL(str(build.library)), list(build.launchers))

    def calling(self, functions: dict[str, Callable]) -> dict[str, Callable]:
        """The functions of the build's binding; each raises its launchers' errors in Python."""
        if self._build.binding == "c":
            for each in functions.values():
                if isinstance(each, CFunction):  # it stays itself, with its parameters
                    each.call_through(self._calling)
            return functions
        return {
            name: self._calling(each) if callable(each) and not isinstance(each, type) else each
            for name, each in functions.items()
        }

    def _calling(self, function: Callable) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            if torch.compiler.is_compiling():
                return function(*args, **kwargs)
            if self.broken and not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self._inputs.recipe.name} compiles only in part: {self.broken}",
                    RuntimeWarning,
                    stacklevel=3,
                )
            self._raised.error = None
            try:
                return function(*args, **kwargs)
            except RuntimeError:
                if error := self._raised.error:
                    raise error.with_traceback(None) from None
                raise

        return call

    def tell_parts(self, on_part: Callable[[Build], None]) -> None:
        """Call `on_part` with the present parts, and later with each new one before it runs."""
        with self._finding:
            self._on_part = on_part
            for part in self.parts:
                on_part(part)

    def fail(self, error: Exception) -> None:
        """Keep the error of the whole build."""
        if isinstance(error, CompileError) and not error.of_machine:
            self.broken = error

    def _answer(self, library: ctypes.CDLL, names: Sequence[str]) -> None:
        """Give a library, which has jumps to functions, their addresses."""
        slots = (ctypes.c_void_p * len(names)).in_dll(library, parts.SLOTS)

        def find(number: int, registers: ctypes.Array) -> int:
            try:
                slots[number] = self._find(names[number])
                return slots[number]
            except BaseException as error:  # C++ throws it in place of the function
                self._raised.error = error
                self._raised.message = ctypes.create_string_buffer(str(error).encode())
                registers[0] = ctypes.addressof(self._raised.message)
                return _throw()

        self._finding_for_c.append(_Find(find))
        address = ctypes.cast(self._finding_for_c[-1], ctypes.c_void_p).value
        ctypes.c_void_p.in_dll(library, parts.FIND).value = address

    def _find(self, name: str) -> int:
        """The address of a function. A library that lacks it asks at the first call."""
        with self._finding:
            is_new = name not in self._addresses
            if is_new:
                self._compile(name)
            self._note(name)
            if is_new and not self._functions[name].site:
                background.start_again(self.name)  # it began without this launcher
            return self._addresses[name]

    def _compile(self, name: str) -> None:
        """Compile a function; a launcher with its kernels if it does not compile without them."""
        choices = [self._functions]
        if not self._functions[name].site:
            choices.append(parts.with_kernels(self._functions))
        with reported_as_one():
            for functions in choices:
                try:
                    part = _part(self._inputs, self._build.name, functions, [name])
                except CompileError:
                    if functions is choices[-1]:
                        raise
                    continue
                if part:
                    return self._add(part)
        raise RuntimeError(
            f"what the compilers read for {self._inputs.recipe.name} has changed: load it again"
        )

    def _add(self, part: Build) -> None:
        """Open a part, and note the addresses of its functions."""
        self.parts.append(part)
        runtime.open_libraries(part)
        Cache.here().use(part.folder)
        own = self._build.folder / part.library.name
        try:
            library = ctypes.CDLL(str(own if own.exists() else part.library))
        except OSError as error:
            message = str(error)
            raise CompileError(
                demangled(message).strip(), hint=hint_for(message), log=part.folder / "log"
            ) from None
        held, jumps = part.exports["held"], part.exports["jumps"]
        table = (ctypes.c_void_p * len(held)).in_dll(library, parts.HELD)
        self._addresses |= zip(held, table, strict=True)
        with contextlib.suppress(ValueError):  # linked from the whole build's object: no jumps
            self._answer(library, jumps)
        self._on_part(part)

    def _note(self, name: str) -> None:
        """Note that a function was called, so that `load` compiles it after the next edit."""
        self._called.append(name)
        facts = {"launchers": self._called}
        with contextlib.suppress(OSError):
            write_note(_note_of(self._inputs), facts)


@cache
def _throw() -> int:
    """The address of std::__throw_runtime_error(const char*) in PyTorch's libstdc++."""
    function = ctypes.CDLL("libstdc++.so.6")._ZSt21__throw_runtime_errorPKc
    return ctypes.cast(function, ctypes.c_void_p).value


def _note_of(inputs: Inputs) -> Path:
    return inputs.cache.own / "called" / f"{inputs.recipe.name}_{inputs.recipe.key}.json"


def called_before(inputs: Inputs) -> list[str]:
    """Functions called before the edit; without a build for lab.check, those of the plain build."""
    if note := read_note(_note_of(inputs)):
        return note["launchers"]
    return called_before(inputs.plain()) if inputs.recipe.check else []
