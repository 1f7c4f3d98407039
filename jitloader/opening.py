"""Opens a library and finds its functions: ops, a Python module's, or plain C functions."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import importlib.util
import inspect
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Self

import torch

from jitloader import guards, runtime
from jitloader.building import build_of, cached, readings
from jitloader.builds import Build
from jitloader.cache import Cache, free_in_child
from jitloader.inputs import Inputs
from toolchain.code import Recipe
from toolchain.errors import CompileError, demangled, hint_for

if TYPE_CHECKING:
    from jitloader.lazy_launchers import Launchers


class NotCopied:
    """A copy is the same object."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        return self


class OpenBuild(NotCopied):
    """One opened build: its functions are attributes, as in `kernel.at(1).forward(x)`."""

    def __init__(
        self, build: Build, functions: dict[str, Callable], launchers: Launchers | None = None
    ):
        self.build = build
        self.functions = functions
        self._launchers = launchers
        self._instances: list[OpenBuild] = []  # instances of its templates
        self._on_library: Callable[[Build], None] | None = None
        for name, function in functions.items():
            self.replace(name, function)

    def replace(self, name: str, function: Callable) -> None:
        self.functions[name] = function
        if name not in _OWN:
            vars(self)[name] = function

    def tell_libraries(self, on_library: Callable[[Build], None]) -> None:
        """Call `on_library` with each build whose library belongs to this one: with those that are
        open now, and later with each that a first call opens, before that call."""
        on_library(self.build)
        self._on_library = on_library
        for instance in self._instances:
            instance.tell_libraries(on_library)
        if self._launchers:
            self._launchers.tell_parts(on_library)

    def __repr__(self) -> str:
        names = ", ".join(self.functions)
        return f"<OpenBuild {self.build.name} for {self.build.target}: {names}>"

    def __reduce__(self) -> tuple:
        raise TypeError(
            f"the build {self.build.name} cannot be pickled, since its library is this machine's:"
            " pickle the handle or one of its functions, which are loaded where they are unpickled"
        )


_OWN = {*dir(OpenBuild), "build", "functions", "_launchers", "_instances", "_on_library"}
_opened: dict[str, OpenBuild] = {}  # by name: registering a namespace twice ends the process
_opening = free_in_child(threading.Lock())


def open_build(build: Build, recipe: Recipe) -> OpenBuild:
    """The build of a recipe in this process; its library is opened once.

    Raises:
        CompileError: the library cannot be opened, for example because a symbol is undefined.
    """
    with _opening:
        if build.name not in _opened:
            check = runtime.check if build.target == "cpu" else None
            if check:
                runtime.start()
                if recipe.check:
                    runtime.tracer() if recipe.trace else runtime.checker()
                runtime.open_libraries(build)
            Cache.here().use(build.folder)
            functions, launchers = dict(functions_of(build, check)), None
            functions |= _templates(build, recipe)
            if build.launchers:
                # Late, as below: a warm load does not need them.
                from jitloader import lazy_kernels, lazy_launchers

                kind = lazy_kernels.Kernels if build.target == "cuda" else lazy_launchers.Launchers
                launchers = lazy_launchers.opened(kind(build, recipe))
                functions = launchers.calling(functions)
            _opened[build.name] = OpenBuild(build, functions, launchers)
        return _opened[build.name]


def opened(inputs: Inputs) -> OpenBuild | None:
    """The build of these inputs, compiled if need be, and opened.

    None if they have to be read again: `build_of` says so, or another process has pruned the build
    meanwhile.
    """
    build = cached(inputs, in_parts=True)
    if build is None:
        from jitloader import lazy_kernels, lazy_launchers
        from jitloader.events import reported_as_one

        kind = lazy_kernels if inputs.recipe.target == "cuda" else lazy_launchers
        if inputs.recipe.target == "cpu":
            runtime.build_beside(with_checker=inputs.recipe.check)
        with reported_as_one():  # the report leaves out a build in parts that failed
            build = kind.begun(inputs) or build_of(inputs)
    if build is None:
        return None
    try:
        result = open_build(build, inputs.recipe)
        if build.launchers and not inputs.recipe.check:
            from jitloader.lazy_launchers import complete

            complete(inputs)
        return result
    except (CompileError, OSError):
        if build.library.exists():
            raise
        return None  # pruned; builds of this process cannot be


def opened_now(recipe: Recipe) -> tuple[Inputs, OpenBuild]:
    """The inputs of a recipe as they are now, and their build, opened."""
    builds = ((inputs, opened(inputs)) for inputs in readings(recipe))
    return next((inputs, build) for inputs, build in builds if build)


def functions_of(build: Build, check: guards.Check | None) -> Iterator[tuple[str, Callable]]:
    """Open the library and find its functions, each with its name.

    After every call `check` is called, which raises a kernel's error that no code has read.

    Raises:
        CompileError: the library cannot be opened, for example because a symbol is undefined.
    """
    binding, exported = build.binding, build.exports
    try:
        if binding == "c":
            from jitloader.cfunctions import CFunction, KernelFunction

            library = ctypes.CDLL(str(build.library))
            for name, signature in exported.items():
                if "template" in signature:
                    continue
                kind = KernelFunction if "kernel" in signature else CFunction
                try:
                    function = kind(library, name, signature, build.target, check)
                except AttributeError:
                    continue  # not in the library: `toolchain.launchers` says why
                yield name, function
            return
        if binding == "module":
            for name, value in vars(_import(build)).items():
                if not name.startswith("__"):
                    yield name, _checked(value, check) if inspect.isroutine(value) else value
        else:
            torch.ops.load_library(str(build.library))
        namespace = getattr(torch.ops, build.name)
        for name in exported:
            if packet := getattr(namespace, name, None):
                overloads = packet.overloads()
                op = getattr(packet, overloads[0]) if len(overloads) == 1 else packet
                yield name, _checked(op, check)
    except (OSError, ImportError) as error:
        message = str(error.__cause__ or error)
        raise CompileError(
            demangled(message).strip(), hint=hint_for(message), log=build.folder / "log"
        ) from None


def _templates(build: Build, recipe: Recipe) -> dict[str, Callable]:
    """The templates of a build; their instances are builds of the same files."""
    if build.binding != "c" or not any("template" in it for it in build.exports.values()):
        return {}
    from jitloader.templates import Template, name_of

    def instantiate(name: str, texts: tuple[str, ...]) -> Callable:
        _, instance = opened_now(replace(recipe, instances=((name, texts),)))
        if instance.build.inputs != build.inputs:
            raise RuntimeError(
                f"the files of {recipe.name} have changed since this build, and {name} was not yet"
                " compiled for these types: reload the kernel"
            )
        whole = _opened[build.name]
        whole._instances.append(instance)
        if whole._on_library:
            instance.tell_libraries(whole._on_library)
        return instance.functions[name_of(name, texts)]

    return {
        name: Template(name, export, instantiate)
        for name, export in build.exports.items()
        if "template" in export
    }


def _import(build: Build) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(build.name, str(build.library))
    spec = importlib.util.spec_from_loader(build.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _checked(function: Callable, check: guards.Check | None) -> Callable:
    if check is None:
        return function

    def checked(*args: object, **kwargs: object) -> object:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except RuntimeError as error:
            message = str(error)
            if (more := guards.explained(message, _tensors(function, args, kwargs))) != message:
                error.args = (more,)
            with contextlib.suppress(RuntimeError):
                check()  # clears a kernel's error: it is known already
            raise
        check(lambda: _tensors(function, args, kwargs))
        return result

    if inspect.isroutine(function):
        checked.__doc__ = function.__doc__
    return checked


def _tensors(function: Callable, args: tuple, kwargs: dict) -> guards.Named:
    """The tensors of a call, with the names of the op's parameters."""
    schema = getattr(function, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema else []
    for i, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            yield (names[i] if i < len(names) else f"argument {i + 1}"), value
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor):
            yield name, value
