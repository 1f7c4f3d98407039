"""The operators of a kernel, and what PyTorch is told of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from PACKAGE.gradient_text import Derivative
from PACKAGE.libraries import operators, why_no_gpu


class Kernel:
    """The operators of one kernel, as attributes: kernel.forward(x).

    name: as its libraries have it. namespace: of its operators in torch.ops. names: theirs.
    """

    def __init__(self, name: str, namespace: str, names: tuple[str, ...]) -> None:
        self.name, self.namespace = name, operators(name, namespace)
        self._library = torch.library.Library(self.namespace, "FRAGMENT")
        for each in names:
            setattr(self, each, self._op(each))
        if reason := why_no_gpu(name):
            for each in names:
                self._library.impl(each, functools.partial(_refuse, name, reason), "CUDA")

    def at(self) -> Kernel:
        """The build that runs: there is no other."""
        return self

    @property
    def build(self) -> SimpleNamespace:
        """Its name, under which its operators are."""
        return SimpleNamespace(name=self.namespace)

    def _op(self, name: str) -> torch._ops.OpOverload:
        return getattr(getattr(torch.ops, self.namespace), name).default

    def register_fake(self, name: str) -> Callable[[Callable], Callable]:
        """Decorator: the shapes of an operator's results, as torch.library.register_fake."""
        return torch.library.register_fake(f"{self.namespace}::{name}")

    def register_autograd(
        self,
        name: str,
        backward: Callable | str,
        *,
        setup_context: Callable | None = None,
        infer: str | None = None,
    ) -> Callable:
        """The gradient of an operator, as torch.library.register_autograd takes it, or as text.

        backward: the text says which operator computes it: gradient_text.py has the rules.
        infer: an operator for where no gradient is wanted. It takes the first arguments of this one
            and gives the first of its results.

        Returns:
            What calls the one or the other.
        """
        op = self._op(name)
        if isinstance(backward, str):
            derivative = Derivative(op, f"{self.name}.{name}", backward)
            backward, setup_context = derivative.backward, derivative.setup_context
        torch.library.register_autograd(
            f"{self.namespace}::{name}", backward, setup_context=setup_context
        )
        if infer:
            setattr(self, infer, _with_or_without(op, self._op(infer)))
        return getattr(self, infer or name)

    def register_autocast(
        self, name: str, keep: tuple[str, ...] = (), policy: str = "promote"
    ) -> None:
        """Inside torch.autocast an operator's floating tensors are cast as those of PyTorch's ops.

        keep: arguments that stay as they are, and have no say.
        policy: "promote": where types differ, to the widest; "lower_precision_fp": to autocast's
            own type, but for float64.
        """
        op = self._op(name)
        kept = {i for i, it in enumerate(op._schema.arguments) if it.name in keep}
        for device in ("cpu", "cuda"):
            cast = functools.partial(_cast, op, kept, policy, device)
            self._library.impl(name, cast, f"Autocast{device.upper()}")


def _refuse(name: str, reason: str, *arguments: Any) -> Any:
    raise RuntimeError(f"{name} got tensors on a GPU, and {reason}")


def _with_or_without(op: torch._ops.OpOverload, infer: torch._ops.OpOverload) -> Callable:
    taken, given = len(infer._schema.arguments), len(infer._schema.returns)

    def call(*arguments: Any) -> Any:
        others = arguments[taken:]
        if _may_be_recorded(arguments) or others.count(None) < len(others):
            results = op(*arguments)
            return results[0] if given == 1 else results[:given]
        return infer(*arguments[:taken])

    return call


def _may_be_recorded(arguments: tuple) -> bool:
    if torch.compiler.is_compiling():  # the graph may be differentiated later
        return True
    tensors = (it for it in arguments if isinstance(it, Tensor))
    return torch.is_grad_enabled() and any(it.requires_grad for it in tensors)


def _cast(
    op: torch._ops.OpOverload, kept: set[int], policy: str, device: str, *arguments: Any
) -> Any:
    def is_floating(i: int) -> bool:
        it = arguments[i]
        return i not in kept and isinstance(it, Tensor) and it.is_floating_point()

    def is_eligible(i: int) -> bool:  # as at::autocast::is_eligible has it
        return arguments[i].device.type == device and arguments[i].dtype != torch.float64

    places = list(filter(is_floating, range(len(arguments))))
    types = {arguments[i].dtype for i in places}
    if policy == "lower_precision_fp":
        places = list(filter(is_eligible, places))
        types = {torch.get_autocast_dtype(device)}
    if types:
        wanted = functools.reduce(torch.promote_types, types)
        given = list(arguments)
        for i in places:
            given[i] = given[i].to(wanted)
        arguments = tuple(given)
    with torch.autocast(device, enabled=False):
        return op(*arguments)
