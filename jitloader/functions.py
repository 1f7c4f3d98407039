"""A handle's functions, and what each of them stands for now."""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from jitloader import tracebacks
from jitloader.cache import free_in_child
from jitloader.opening import OpenBuild

if TYPE_CHECKING:
    from jitloader.cfunctions import Launch
    from jitloader.handle import Kernel
    from jitloader.shapes import OfClass


class Function:
    """One name of a kernel's: always the newest build's, however long ago it was taken.

    A copy is the same function, and so is what is unpickled: in another process, that of its
    kernel there.
    """

    def __init__(self, kernel: Kernel, name: str, call: Callable):
        self._kernel = kernel
        self.__name__ = name
        self.__qualname__ = f"{kernel.recipe.name}.{name}"
        self.point_at(call)

    def __call__(self, *args: object, **kwargs: object) -> object:
        try:
            return self._call(*args, **kwargs)
        except Exception:
            tracebacks.shorten_in_ipython()
            raise

    def __getitem__(self, configuration: object) -> Launch:
        """Of a kernel: `kernel.add[grid, block]`, which waits for the arguments."""
        from jitloader.cfunctions import Launch  # late: a warm load of a binding does without

        newest = self._kernel._functions.newest  # what is called may stand before the template
        known = newest.functions.get(self.__name__) if newest else None
        if chosen := getattr(known, "chosen", None):  # it is a template
            return chosen(self, configuration)
        return Launch(self, configuration)

    @property
    def __signature__(self) -> inspect.Signature | None:
        """In the words of C, where it is a C function's or a kernel's."""
        return getattr(self._call, "__signature__", None)

    def point_at(self, call: Callable) -> None:
        self._call, self.__doc__ = call, call.__doc__
        if self.__signature__:
            self.__call__ = call  # whose signature IPython would show besides
        else:
            vars(self).pop("__call__", None)  # torch.compile traces none of an instance's own

    def __repr__(self) -> str:
        return f"<Function {self.__qualname__}>"

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, memo: dict) -> Function:
        return self

    def __reduce__(self) -> tuple:
        return getattr, (self._kernel, self.__name__)


class NamedAsMethod(Function):
    """A function with the name of one of the handle's own methods, as `reload`.

    Launched, as in `kernel.reload[1, 32](x)`, or given a tensor, it is the function; otherwise the
    method. Only `debug` takes tensors, and what it calls comes first.
    """

    def __call__(self, *args: object, **kwargs: object) -> object:
        from jitloader.cfunctions import Configuration  # late: a warm load does without

        given = (*args, *kwargs.values())
        has_data = any(isinstance(it, (Configuration, torch.Tensor)) for it in given)
        if has_data and not (isinstance(given[0], str) or callable(given[0])):
            return super().__call__(*args, **kwargs)
        return getattr(type(self._kernel), self.__name__)(self._kernel, *args, **kwargs)

    def point_at(self, call: Callable) -> None:
        self._call, self.__doc__ = call, call.__doc__


class Functions:
    """The functions of one handle: whose they are now.

    They are the newest build's. Where its sources are broken each raises the error; during
    `lab.check` each is the instrumented build's; and in a thread that runs a formula of another
    build, that build's.

    Attributes:
        newest: the build of the files as they were when they last compiled.
        error: what they raise now; then nothing runs.
        instead: gives the build that runs in their place, at each call.
        instrumented: the build that `instead` leads to.
        classes: the builds for single classes of shapes, beside the newest.
        around: is given what each of them stands for, and returns what it shall be meanwhile.

    no_such: what an error says of a name that the newest build does not have.
    """

    def __init__(self, kernel: Kernel, no_such: Callable[[str], str]):
        self.newest: OpenBuild | None = None
        self.error: Exception | None = None
        self.instead: Callable[[], OpenBuild] | None = None
        self.instrumented: OpenBuild | None = None
        self.classes: list[OfClass] = []
        self.around: Callable[[Callable], Callable] | None = None
        self._kernel, self._no_such = kernel, no_such
        self._known: dict[str, Function] = {}
        self._running: dict[int, OpenBuild] = {}  # by thread: whose formula it runs
        self._by_thread = False  # whether functions have to look there
        self._redirecting = free_in_child(threading.Lock())
        os.register_at_fork(after_in_child=self._running.clear)  # of threads that it has not

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def redirect(self) -> None:
        """Point every function at what it stands for now."""
        with self._redirecting:
            for name in self.newest.functions if self.newest else ():
                if name not in self._known:
                    self._add(name)
            current = [None if self.error else self.newest]
            if self.instead and self.instrumented:
                current.append(self.instrumented)
            self._by_thread = any(b not in current for b in list(self._running.values()))
            for name, function in self._known.items():
                call = self._now(name)
                call = self.around(call) if self.around else call
                function.point_at(self._for_each_thread(name, call) if self._by_thread else call)

    def _add(self, name: str) -> None:
        """Make a function an attribute of the handle, unless it would hide one of the handle's."""
        own = inspect.getattr_static(self._kernel, name, None)
        declared = self.newest.build.exports.get(name)  # None for a binding's
        is_launched = bool(declared) and ("kernel" in declared or "template" in declared)
        takes_data = not declared or is_launched or any("*" in p for p in declared["parameters"])
        kind = NamedAsMethod if inspect.isfunction(own) and takes_data else Function
        self._known[name] = function = kind(self._kernel, name, self._unknown(name))
        if own is None or kind is NamedAsMethod:
            vars(self._kernel)[name] = function
            return
        from jitloader.cfunctions import callers_level  # late: a warm load does without

        handle = self._kernel.recipe.name
        launch = "[grid, block]" if is_launched else ""
        warnings.warn(
            f"{handle} has a function called {name}, and so has every handle: {handle}.{name} is"
            f" the handle's. Give the function another name, or call it as"
            f' {handle}.at().functions["{name}"]{launch}(...)',
            RuntimeWarning,
            stacklevel=callers_level(),
        )

    def run_with(self, build: OpenBuild, formula: Callable, *arguments: object) -> object:
        """Call a formula. Meanwhile, in this thread, the handle's functions are those of `build`.

        A formula calls `kernel.backward`, and a graph may be older than the newest build.
        """
        outer = self.of_this_thread()
        self._runs_formula_of(build)
        try:
            return formula(*arguments)
        finally:
            self._runs_formula_of(outer)

    def running(self) -> OpenBuild:
        """The build that runs where a function is called now, in this thread.

        Raises the error that it would raise.
        """
        if build := self.of_this_thread():
            return build
        if self.instead:
            return self.instead()
        if self.error:
            raise self.error.with_traceback(None)
        return self.newest

    def of_this_thread(self) -> OpenBuild | None:
        """The build whose formula this thread runs."""
        return self._running.get(threading.get_ident())

    def _runs_formula_of(self, build: OpenBuild | None) -> None:
        thread = threading.get_ident()
        if build:
            self._running[thread] = build
        else:
            self._running.pop(thread, None)
        if self._by_thread or (build and (self.error or build is not self.newest)):
            self.redirect()

    def _now(self, name: str) -> Callable:
        if self.instead:
            return _of(self.instead, name)
        if self.error:
            return _raiser(self.error)
        newest = self.newest.functions.get(name, self._unknown(name))
        if not self.classes:
            return newest
        from jitloader.shapes import by_shape

        return by_shape(self.classes, name, newest)

    def _for_each_thread(self, name: str, call: Callable) -> Callable:
        def by_thread(*args: object, **kwargs: object) -> object:
            build = self.of_this_thread()
            function = build.functions.get(name, self._unknown(name)) if build else call
            return function(*args, **kwargs)

        return by_thread

    def _unknown(self, name: str) -> Callable:
        def unknown(*_: object, **__: object) -> None:
            raise AttributeError(self._no_such(name))

        return unknown


def _of(instead: Callable[[], OpenBuild], name: str) -> Callable:
    def call(*args: object, **kwargs: object) -> object:
        return instead().functions[name](*args, **kwargs)

    return call


def _raiser(error: Exception) -> Callable:
    def fail(*_: object, **__: object) -> None:
        raise error.with_traceback(None)

    return fail
