"""What an edit changes of a kernel is compiled launcher by launcher, as calls ask for it.

A build in parts (`toolchain.parts`) takes the place of a whole one where an edit has left the
bindings alone. `load` compiles what was called of the build before, so that an error there is
raised at once; what else is called is compiled then, and the call waits for that alone. The whole
build follows in the background. It is what the cache keeps, and what later processes open. If it
does not compile, the next call warns of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import torch

from jitloader import background, objects, runtime
from jitloader.building import build_of, completed, linked
from jitloader.builds import Build
from jitloader.cache import Cache
from jitloader.inputs import Inputs
from toolchain import parts
from toolchain.code import Recipe
from toolchain.errors import CompileError, demangled, hint_for
from toolchain.notes import read_note, write_note

_Find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))


def begun(inputs: Inputs) -> Build | None:
    """A build of these inputs in parts, its first part compiled.

    None where it is for `build_of` to compile them whole, or to say why they do not compile.
    """
    apart = objects.apart(inputs)
    if apart is None:
        return None
    called = {n: apart.launchers[n] for n in called_before(inputs) if n in apart.launchers}
    try:
        first = _part(inputs, inputs.name, called)
        return linked(inputs, apart, first.name) if first else None
    except CompileError:
        return None


def _part(inputs: Inputs, build: str, launchers: Mapping[str, Sequence[str]]) -> Build | None:
    """The library with some launchers of a build, compiled if there is none.

    Returns and raises as `build_of` does.
    """
    try:
        return build_of(objects.part_of(inputs, build, launchers))
    except CompileError as error:
        said = error.log.read_text("utf-8", errors="replace") if error.log else ""
        left = {name: parts.without_aliases(each, said) for name, each in launchers.items()}
        if left == {name: tuple(each) for name, each in launchers.items()}:
            raise
        return build_of(objects.part_of(inputs, build, left))


def complete(inputs: Inputs) -> None:
    """Have the whole build made in the background of one that is open in parts."""
    launchers = _open.get(inputs.name)
    if launchers and launchers.broken is None:
        background.start(inputs.name, partial(completed, inputs), launchers.fail)


def opened(launchers: Launchers) -> Launchers:
    """Keep the launchers of a build in parts, whose library has just been opened."""
    _open[launchers.name] = launchers
    return launchers


def said_of(build: Build) -> str:
    """What the compilers have said so far of a build that is open in parts."""
    launchers = _open.get(build.name)
    return "".join(part.log() for part in [build, *(launchers.parts if launchers else ())])


def whole(build: Build, recipe: Recipe) -> Build:
    """The build that is compiled whole, of one that is in parts.

    Raises: as `build_of` does.
    """
    if not build.launchers:
        return build
    background.stop()
    return build_of(Inputs.kept(recipe, build)) or build


_open: dict[str, Launchers] = {}  # by the names of their builds


class Launchers:
    """Those of an open build in parts.

    Attributes:
        name: the build's.
        broken: why the whole build does not compile.
        parts: those that have been compiled since it was opened.
    """

    def __init__(self, build: Build, recipe: Recipe):
        self.broken: CompileError | None = None
        self.name = build.name
        self._build = build
        self._inputs = Inputs.kept(recipe, build)
        self.parts: list[Build] = []
        self._names = list(build.launchers)
        self._addresses: dict[str, int] = {}
        self._called: list[str] = []
        self._finding = threading.RLock()
        self._raised = threading.local()  # .error: why a launcher could not be found
        self._warned = False
        first = Build.read(build.folder.with_name(build.first))
        if first and first.is_whole() and self._inputs.cache.trusts(first.folder):
            self._add(first)
        library = ctypes.CDLL(str(build.library))
        self._slots = (ctypes.c_void_p * len(self._names)).in_dll(library, parts.SLOTS)
        self._find_for_c = _Find(self._find)
        address = ctypes.cast(self._find_for_c, ctypes.c_void_p).value
        ctypes.c_void_p.in_dll(library, parts.FIND).value = address

    def calling(self, functions: dict[str, Callable]) -> dict[str, Callable]:
        """The functions of the build's binding; each raises in Python what its launchers raise."""
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

    def fail(self, error: Exception) -> None:
        """Take note of an error of the whole build."""
        if isinstance(error, CompileError) and not error.of_machine:
            self.broken = error

    def _find(self, number: int, registers: ctypes.Array) -> int:
        """Where a launcher is; asked at its first call, by the build's library."""
        try:
            with self._finding:
                name = self._names[number]
                if name not in self._addresses:
                    self._compile(name)
                self._note(name)
                self._slots[number] = self._addresses[name]
                return self._addresses[name]
        except BaseException as error:  # which C++ is to throw in the launcher's place
            self._raised.error = error
            self._raised.said = ctypes.create_string_buffer(str(error).encode())
            registers[0] = ctypes.addressof(self._raised.said)
            return _throw()

    def _compile(self, name: str) -> None:
        build = _part(self._inputs, self._build.name, {name: self._build.launchers[name]})
        if build is None:
            name = self._inputs.recipe.name
            raise RuntimeError(f"what the compilers read for {name} has changed: load it again")
        self._add(build)

    def _add(self, part: Build) -> None:
        """Open a part, and note where its launchers are."""
        self.parts.append(part)
        runtime.open_libraries(part)
        Cache.here().use(part.folder)
        try:
            library = ctypes.CDLL(str(part.library))
        except OSError as error:
            said = str(error)
            raise CompileError(
                demangled(said).strip(), hint=hint_for(said), log=part.folder / "log"
            ) from None
        table = (ctypes.c_void_p * len(part.exports)).in_dll(library, parts.LAUNCHERS)
        self._addresses |= zip(part.exports, table, strict=True)

    def _note(self, name: str) -> None:
        """Note that a launcher was called: after the next edit it is compiled at once."""
        self._called.append(name)
        facts = {"launchers": self._called}
        with contextlib.suppress(OSError):
            write_note(_note_of(self._inputs), facts)

    def renew_after_fork(self) -> None:
        self._finding = threading.RLock()


@cache
def _throw() -> int:
    """Where std::__throw_runtime_error(const char*) is, in the libstdc++ that PyTorch loads."""
    function = ctypes.CDLL("libstdc++.so.6")._ZSt21__throw_runtime_errorPKc
    return ctypes.cast(function, ctypes.c_void_p).value


def _note_of(inputs: Inputs) -> Path:
    return inputs.cache.own / "called" / f"{inputs.recipe.name}_{inputs.recipe.key}.json"


def called_before(inputs: Inputs) -> list[str]:
    note = read_note(_note_of(inputs))
    return note["launchers"] if note else []


def _renew_locks() -> None:
    """In a forked process nobody else is left to release them."""
    for launchers in _open.values():
        launchers.renew_after_fork()


os.register_at_fork(after_in_child=_renew_locks)
