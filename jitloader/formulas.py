"""What the handle is told of its ops, given to every build of theirs.

Fake implementations, gradients and autocast, as `torch.library` takes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch

from jitloader import autocast, gradients
from jitloader.opening import OpenBuild

# How a formula is called: run(build, formula, *arguments).
Run = Callable[..., object]


class Formulas:
    """The formulas of one kernel's ops.

    kernel: its name.
    is_covered: whether the builds' digests cover a formula.
    run: calls a formula with the handle's functions those of a build, as in `run(build, backward,
        ctx, *grads)`.
    """

    def __init__(self, kernel: str, is_covered: Callable[[Callable], bool], run: Run):
        self.kernel, self.is_covered, self.run = kernel, is_covered, run
        self.fakes: dict[str, Callable] = {}
        self.gradients: dict[str, tuple[Callable, Callable | None]] = {}
        self.autocast: dict[str, tuple[str, ...]] = {}
        self.infer_counts: dict[str, tuple[int, int]] = {}  # of its arguments, of its results
        self._infers: dict[str, str] = {}
        self._registered: set[tuple[str, str, str]] = set()

    def modules(self) -> set[str]:
        """Of those who gave them."""
        formulas = [*self.fakes.values(), *(backward for backward, _ in self.gradients.values())]
        return {formula.__module__ for formula in formulas}

    def add_fake(self, name: str, formula: Callable) -> None:
        self._consider(formula)
        self.fakes[name] = formula

    def add_gradient(
        self,
        name: str,
        backward: Callable,
        setup_context: Callable | None,
        infer: str | None = None,
    ) -> None:
        for formula in filter(None, (backward, setup_context)):
            self._consider(formula)
        self.gradients[name] = backward, setup_context
        if infer is not None:
            self._infers[name] = infer

    def _consider(self, formula: Callable) -> None:
        """Where the digest does not cover a formula, no compiled gradient may come from disk.

        AOTAutograd's cache takes an op of the same name for the same op, whatever its formulas.
        """
        if not self.is_covered(formula):
            import torch._functorch.config as functorch

            functorch.enable_autograd_cache = False

    def register(self, opened: OpenBuild) -> None:
        """Give a build's ops the formulas; a new graph takes those that were added last."""
        for name in self._new("fake", self.fakes, opened):
            torch.library.register_fake(f"{opened.build.name}::{name}", self._fake_of(name))
        for name in self._new("gradient", self.gradients, opened):
            formulas = functools.partial(self.gradients.__getitem__, name)
            run = functools.partial(self.run, opened)
            call = gradients.register(_op(opened, name), f"{self.kernel}.{name}", formulas, run)
            opened.functions[name] = vars(opened)[name] = call
        for name, infer in self._infers.items():
            if infer in opened.functions:
                schema = _op(opened, infer)._schema
                self.infer_counts[name] = len(schema.arguments), len(schema.returns)
        for name in self._new("autocast", self.autocast, opened):
            autocast.register(_op(opened, name), self.autocast[name])

    def _new(self, kind: str, formulas: dict[str, object], opened: OpenBuild) -> Iterator[str]:
        """The ops of a build that have no formula of this kind yet, and are given one now."""
        for name in formulas.keys() & opened.functions.keys():
            key = (opened.build.name, name, kind)
            if key not in self._registered:
                yield name
                self._registered.add(key)

    def _fake_of(self, name: str) -> Callable:
        def fake(*args: object, **kwargs: object) -> object:
            devices = {arg.device.type for arg in args if isinstance(arg, torch.Tensor)}
            if "meta" in devices and len(devices) > 1:
                # PyTorch comes here for one meta tensor; the result would be uninitialised.
                raise RuntimeError(
                    f"{self.kernel}.{name} got tensors on {' and '.join(sorted(devices))};"
                    " wanted is one device for all"
                )
            return self.fakes[name](*args, **kwargs)

        return fake


def _op(opened: OpenBuild, name: str) -> torch._ops.OpOverload:
    return getattr(getattr(torch.ops, opened.build.name), name).default
