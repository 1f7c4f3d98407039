"""Gradients of a build's ops, as PyTorch's dispatcher calls them.

`register` is torch.library.register_autograd but for two things. torch.func's grad, vjp and jacrev
work: PyTorch's own raises under them. And forward-mode differentiation (torch.func.jvp, hessian),
for which nobody gave a formula, raises: PyTorch's own drops the tangents and answers 0.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

__all__ = ["fragment", "is_recorded", "register"]


def is_recorded(*args: Any, **kwargs: Any) -> bool:
    """Whether a call with these arguments has to go through its op's gradient formula.

    So it is where a tensor requires a gradient, under forward-mode differentiation and torch.func,
    and within torch.compile, whose graph may be differentiated later.
    """
    return (
        torch.compiler.is_dynamo_compiling()
        or (torch.is_grad_enabled() and torch._C._any_requires_grad(*args, **kwargs))
        or forward_ad._current_level >= 0
        or torch._C._are_functorch_transforms_active()
    )


@cache
def fragment(namespace: str) -> torch.library.Library:
    """Where Python may register more for a build's ops; what it registers lives as long as this."""
    return torch.library.Library(namespace, "FRAGMENT")


def register(
    op: torch._ops.OpOverload, label: str, backward: Callable, setup_context: Callable
) -> Callable:
    """Give `op` a gradient.

    op: of positional arguments alone; it must not write to any of them.
    label: its name in errors.
    backward, setup_context: as torch.library.register_autograd takes them.

    Returns:
        What calls `op`, and where nothing is recorded goes past the gradient: the dispatcher need
        not come back to Python to learn that, which takes longer than all the rest of a call.
    """
    if not torch._library.utils.is_functional_schema(op._schema):
        raise RuntimeError(f"{label} writes to an argument: it can have no gradient formula")

    def below(keys: torch._C.DispatchKeySet, arguments: Iterable[Any]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & torch._C._after_autograd_keyset, *arguments)

    class Formula(_SingleLevelFunction):
        # The last argument is the dispatcher's key set, which belongs to the call.

        @staticmethod
        def forward(*given: Any) -> Any:
            *arguments, keys = given
            if not torch._C._are_functorch_transforms_active():
                return below(keys, arguments)
            # torch.func nests differentiations; the levels below this one record for themselves,
            # but within `forward` PyTorch has switched recording off.
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
                return below(keys, arguments)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
            arguments, _ = torch._library.utils.fill_defaults(op._schema, inputs[:-1], {})
            setup_context(ctx, arguments, output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple:
            if all(grad is None for grad in grads):  # of a setup_context that wants no zeros
                return (None,) * len(ctx.needs_input_grad)
            result = backward(ctx, *grads)
            return (*result, None) if isinstance(result, tuple) else (result, None)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            raise NotImplementedError(
                f"{label} has no forward-mode derivative (torch.func.jvp, hessian): use"
                " torch.func.vjp or jacrev"
            )

    def autograd(keys: torch._C.DispatchKeySet, *arguments: Any) -> Any:
        tracked = torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments)
        if not tracked and forward_ad._current_level < 0:
            return below(keys, arguments)
        if not torch._C._are_functorch_transforms_active():
            return Formula.apply(*arguments, keys)
        with enable_single_level_autograd_function():  # the dispatcher comes once for each level
            return Formula.apply(*arguments, keys)

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_recorded(*args, **kwargs):
            return op(*args, **kwargs)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args, **kwargs)

    library = fragment(op.namespace)
    library.impl(op._opname, autograd, "Autograd", with_keyset=True)
    return call
