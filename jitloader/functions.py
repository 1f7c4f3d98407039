"""A handle's functions, and which build's function each of them calls now."""

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
from jitloader.opening import NotCopied, OpenBuild

if TYPE_CHECKING:
    from jitloader.cfunctions import Launch
    from jitloader.handle import Kernel
    from jitloader.shapes import OfClass


class Function(NotCopied):
    """One function of a kernel: it always calls the newest build, however long ago it was taken.

    A copy is the same function, and so is the result of unpickling it; in another process, that is
    the function of the kernel there.
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
        """For a kernel: `kernel.add[grid, block]`, to be called with the arguments."""
        from jitloader.cfunctions import Launch  # late: a warm load of a binding does not need it

        newest = self._kernel._functions.newest  # a wrapper may replace the template
        known = newest.functions.get(self.__name__) if newest else None
        if chosen := getattr(known, "chosen", None):  # it is a template
            return chosen(self, configuration)
        return Launch(self, configuration)

    @property
    def __signature__(self) -> inspect.Signature | None:
        """With C types, if it is a C function or a kernel."""
        return getattr(self._call, "__signature__", None)

    def point_at(self, call: Callable) -> None:
        self._call, self.__doc__ = call, call.__doc__
        if self.__signature__:
            self.__call__ = call  # or IPython would show (*args, **kwargs), too
        else:
            vars(self).pop("__call__", None)  # torch.compile does not trace an instance's own

    def __repr__(self) -> str:
        return f"<Function {self.__qualname__}>"

    def __reduce__(self) -> tuple:
        return getattr, (self._kernel, self.__name__)


class NamedAsMethod(Function):
    """A function with the name of one of the handle's own methods, such as `reload`.

    With a grid, as in `kernel.reload[1, 32](x)`, or with a tensor it calls the function, otherwise
    the method. Of the methods only `debug` takes tensors; its first argument is a function.
    """

    def __call__(self, *args: object, **kwargs: object) -> object:
        from jitloader.cfunctions import Configuration  # late: a warm load does not need it

        given = (*args, *kwargs.values())
        has_data = any(isinstance(it, (Configuration, torch.Tensor)) for it in given)
        if has_data and not (isinstance(given[0], str) or callable(given[0])):
            return super().__call__(*args, **kwargs)
        return getattr(type(self._kernel), self.__name__)(self._kernel, *args, **kwargs)

    def point_at(self, call: Callable) -> None:
        self._call, self.__doc__ = call, call.__doc__


class Functions:
    """The functions of one handle, and the build that each of them calls now.

    That is the newest build. If its sources do not compile, each function raises the error; during
    `lab.check` the instrumented build is called; and in a thread that runs a formula of another
    build, that build.

    Attributes:
        newest: the build of the files as they were when they last compiled.
        error: what the functions raise now; then nothing runs.
        instead: returns the build to call in place of the newest, at each call.
        instrumented: the build that `instead` returns.
        classes: the builds for single classes of shapes, beside the newest.
        around: wraps the function that each of them calls.

    no_such: returns the message for a name that the newest build does not have.
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
        self._running: dict[int, OpenBuild] = {}  # by thread: the build whose formula it runs
        self._by_thread = False  # whether functions have to check that
        self._redirecting = free_in_child(threading.Lock())
        os.register_at_fork(after_in_child=self._running.clear)  # no such threads there

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def redirect(self) -> None:
        """Point every function at the one that it calls now."""
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
        """Make a function an attribute of the handle, unless that would hide the handle's own."""
        own = inspect.getattr_static(self._kernel, name, None)
        declared = self.newest.build.exports.get(name)  # None with a binding
        is_launched = bool(declared) and ("kernel" in declared or "template" in declared)
        takes_data = not declared or is_launched or any("*" in p for p in declared["parameters"])
        kind = NamedAsMethod if inspect.isfunction(own) and takes_data else Function
        self._known[name] = function = kind(self._kernel, name, self._unknown(name))
        if own is None or kind is NamedAsMethod:
            vars(self._kernel)[name] = function
            return
        from jitloader.cfunctions import callers_level  # late: a warm load does not need it

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
        """Call a formula. Meanwhile, in this thread, the handle's functions call `build`.

        A formula may call `kernel.backward`, and its graph may be older than the newest build.
        """
        outer = self.of_this_thread()
        self._runs_formula_of(build)
        try:
            return formula(*arguments)
        finally:
            self._runs_formula_of(outer)

    def running(self) -> OpenBuild:
        """The build that a function called now, in this thread, would run.

        Raises the error that such a call would raise.
        """
        if build := self.of_this_thread():
            return build
        if self.instead:
            return self.instead()
        if self.error:
            raise self.error.with_traceback(None)
        return self.newest

    def of_this_thread(self) -> OpenBuild | None:
        """The build whose formula this thread is running."""
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
