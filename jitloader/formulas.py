"""The formulas that a handle is given for its ops, registered for each of its builds.

Fake implementations, gradients and autocast, as `torch.library` takes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING

import torch

from jitloader import gradients
from jitloader.opening import OpenBuild

if TYPE_CHECKING:
    from jitloader.gradient_text import Derivative

# How a formula is called: run(build, formula, *arguments).
Run = Callable[..., object]


class Formulas:
    """The formulas of one kernel's ops.

    kernel: its name.
    is_covered: whether the builds' digests cover a formula.
    run: calls a formula, as in `run(build, backward, ctx, *grads)`; meanwhile the handle's
        functions are those of the build.
    """

    def __init__(self, kernel: str, is_covered: Callable[[CodeType | None], bool], run: Run):
        self.kernel, self.is_covered, self.run = kernel, is_covered, run
        self.fakes: dict[str, Callable] = {}
        self.gradients: dict[str, tuple[Callable, Callable | None] | str] = {}
        self.autocast: dict[str, tuple[str, tuple[str, ...]]] = {}  # policy; arguments to keep
        self.infers: dict[str, str] = {}  # by op: the op for calls that record nothing
        self._registered: set[tuple[str, ...]] = set()
        self._derivatives: dict[tuple[str, str, str], Derivative] = {}  # by build, op and text

    def modules(self) -> set[str]:
        """The modules that defined them."""
        functions = (given[0] for given in self.gradients.values() if not isinstance(given, str))
        return {formula.__module__ for formula in (*self.fakes.values(), *functions)}

    def add_fake(self, name: str, formula: Callable) -> None:
        self._consider(formula)
        self.fakes[name] = formula

    def add_gradient(self, name: str, backward: Callable, setup_context: Callable | None) -> None:
        for formula in filter(None, (backward, setup_context)):
            self._consider(formula)
        self.gradients[name] = backward, setup_context

    def add_text(self, name: str, text: str, given_at: CodeType) -> None:
        """Add a gradient as text, which `gradient_text` reads."""
        self._consider(given_at)
        self.gradients[name] = text

    def _consider(self, formula: Callable | CodeType) -> None:
        """If the digest does not cover a formula, switch off AOTAutograd's cache on disk.

        The cache knows an op by its name, and would return gradients of other formulas.
        """
        code = formula if isinstance(formula, CodeType) else getattr(formula, "__code__", None)
        if not self.is_covered(code):  # a builtin has no code
            import torch._functorch.config as functorch

            functorch.enable_autograd_cache = False

    def register(self, opened: OpenBuild) -> None:
        """Register the formulas for a build's ops; new graphs use those that were added last."""
        for name in self._new("fake", self.fakes, opened):
            torch.library.register_fake(f"{opened.build.name}::{name}", self._fake_of(name))
        for name in self._new("gradient", self.gradients, opened):
            formulas = functools.partial(self._gradient_of, opened, name)
            run = functools.partial(self.run, opened)
            call = gradients.register_gradient(_op(opened, name), self._label(name), formulas, run)
            opened.replace(name, self._quick(call, opened, name))
        for name in self._new("infer", self.infers, opened):
            infer = self.infers[name]
            call = gradients.with_or_without(opened.functions[name], _op(opened, infer))
            opened.replace(infer, self._quick(call, opened, name, infer))
        for name in self._new("autocast", self.autocast, opened):
            from jitloader import autocast  # late: a warm load does not need it

            autocast.register_autocast(
                _op(opened, name), opened.functions[name], *self.autocast[name]
            )

    def _new(self, kind: str, formulas: dict[str, object], opened: OpenBuild) -> Iterator[str]:
        """The ops of a build that have no formula of this kind yet and get one now."""
        for name in formulas.keys() & opened.functions.keys():
            key = (opened.build.name, name, kind)
            if key not in self._registered:
                yield name
                self._registered.add(key)

    def _label(self, name: str) -> str:
        return f"{self.kernel}.{name}"

    def derivative(self, opened: OpenBuild, name: str) -> Derivative:
        """The gradient of a build's op, from its text."""
        from jitloader.gradient_text import Derivative  # late: a warm load does not need it

        text = self.gradients[name]
        key = opened.build.name, name, text
        if key not in self._derivatives:
            self._derivatives[key] = Derivative(_op(opened, name), self._label(name), text)
        return self._derivatives[key]

    def _gradient_of(self, opened: OpenBuild, name: str) -> tuple[Callable, Callable | None]:
        given = self.gradients[name]
        if not isinstance(given, str):
            return given
        derivative = self.derivative(opened, name)
        return derivative.backward, derivative.setup_context

    def _quick(
        self, call: Callable, opened: OpenBuild, name: str, infer: str | None = None
    ) -> Callable:
        """A function that calls `call`, or, if the gradient is text, a recorder without Python.

        The recorder is made when a gradient is first recorded. torch.compile traces `call`.
        """
        known: tuple[object, Callable] = None, call

        def quick(*args: object, **kwargs: object) -> object:
            nonlocal known
            if torch.compiler.is_dynamo_compiling():
                return call(*args, **kwargs)
            given, instead = known
            if given is not self.gradients[name]:
                if not gradients.is_recorded(*args, **kwargs):
                    return call(*args, **kwargs)
                given, instead = self.gradients[name], call
                if isinstance(given, str):
                    from jitloader import derivatives

                    op = None if infer is None else _op(opened, infer)
                    instead = derivatives.recorder(self.derivative(opened, name), op) or call
                known = given, instead
            return instead(*args, **kwargs)

        return quick

    def _fake_of(self, name: str) -> Callable:
        def fake(*args: object, **kwargs: object) -> object:
            devices = {arg.device.type for arg in args if isinstance(arg, torch.Tensor)}
            if "meta" in devices and len(devices) > 1:
                # PyTorch calls the fake if one tensor is meta; the result would be uninitialised.
                raise RuntimeError(
                    f"{self.kernel}.{name} got tensors on {' and '.join(sorted(devices))};"
                    " wanted is one device for all"
                )
            return self.fakes[name](*args, **kwargs)

        return fake


def _op(opened: OpenBuild, name: str) -> torch._ops.OpOverload:
    return getattr(getattr(torch.ops, opened.build.name), name).default
