"""Gradients of a build's ops, as PyTorch's dispatcher calls them.

`register_gradient` differs from torch.library.register_autograd in two ways. torch.func's grad, vjp
and jacrev work, under which PyTorch's raises. And forward-mode differentiation (torch.func.jvp,
hessian), which has no formula, raises, where PyTorch's drops the tangents and returns 0.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

__all__ = ["fragment", "is_recorded", "register_gradient", "with_or_without"]


def is_recorded(*args: Any, **kwargs: Any) -> bool:
    """Whether a call with these arguments has to go through its op's gradient formula.

    It has to if a tensor requires a gradient, under forward-mode differentiation and torch.func,
    and in torch.compile, whose graph may be differentiated later.
    """
    return (
        torch.compiler.is_dynamo_compiling()
        or (torch.is_grad_enabled() and torch._C._any_requires_grad(*args, **kwargs))
        or forward_ad._current_level >= 0
        or torch._C._are_functorch_transforms_active()
    )


@cache
def fragment(namespace: str) -> torch.library.Library:
    """A library for registrations for a build's ops from Python; they live as long as it does."""
    return torch.library.Library(namespace, "FRAGMENT")


def register_gradient(
    op: torch._ops.OpOverload,
    label: str,
    formulas: Callable[[], tuple[Callable, Callable | None]],
    run: Callable[..., Any],
) -> Callable:
    """Give `op` a gradient.

    op: it has only positional arguments, and must not write to any of them.
    label: its name in errors.
    formulas: returns backward and setup_context, as torch.library.register_autograd takes them.
        It is called at each forward pass; the graph keeps the backward that it returned.
    run: calls a formula, `run(backward, ctx, *grads)`, with the functions of the build of `op`. A
        checkpoint (torch.utils.checkpoint, use_reentrant=False) recomputes the op through it, too.

    Returns:
        A function that calls `op`. If nothing is recorded it bypasses the gradient, because the
        dispatcher's call back to Python takes longer than all the rest of a call.
    """
    if not torch._library.utils.is_functional_schema(op._schema):
        raise RuntimeError(f"{label} writes to an argument: it can have no gradient formula")

    count = len(op._schema.arguments)  # here, because it takes longer than a small call

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
            # torch.func nests differentiations. The levels below this one record on their own, but
            # inside of `forward` PyTorch has switched recording off.
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
                return below(keys, arguments)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
            _compute_again_with(run)
            ctx._backward_formula, setup_context = formulas()
            if setup_context:
                arguments = inputs[:-1]
                if len(arguments) < count:  # the dispatcher leaves defaults out
                    arguments, _ = torch._library.utils.fill_defaults(op._schema, arguments, {})
                run(setup_context, ctx, arguments, output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple:
            if all(grad is None for grad in grads):  # setup_context wanted None, not zeros
                return (None,) * len(ctx.needs_input_grad)
            result = run(ctx._backward_formula, ctx, *grads)
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
        with enable_single_level_autograd_function():  # called once for each level
            return Formula.apply(*arguments, keys)

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_recorded(*args, **kwargs):
            return op(*args, **kwargs)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args, **kwargs)

    library = fragment(op.namespace)
    library.impl(op._opname, autograd, "Autograd", with_keyset=True)
    return call


def with_or_without(
    with_gradient: Callable[..., Any], infer: torch._ops.OpOverload
) -> Callable[..., Any]:
    """A function with the results of `infer`, which calls `with_gradient` to record a gradient.

    with_gradient: its first arguments and results are those of `infer`. It is called, too, if
        further arguments are given.
    """
    taken, given = len(infer._schema.arguments), len(infer._schema.returns)

    def call(*arguments: Any) -> Any:
        others = arguments[taken:]
        if is_recorded(*arguments) or others.count(None) < len(others):
            results = with_gradient(*arguments)
            return results[0] if given == 1 else results[:given]
        return infer(*arguments[:taken])

    return call


def _compute_again_with(run: Callable[..., Any]) -> None:
    """If a checkpoint is recording, make it recompute its function through `run`.

    Usually another op's backward starts the recomputation, so this op's would be too late to do it.
    PyTorch has no public way to find the checkpoint; its hooks for saved tensors lead to it.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if not hooks or not getattr(hooks[0], "__qualname__", "").startswith("_checkpoint_hook."):
        return
    frame = inspect.getclosurevars(hooks[0]).nonlocals["frame"]
    runs = vars(frame).setdefault("_told_by_jitload", set())
    if run not in runs:
        runs.add(run)
        frame.recompute_fn = partial(run, frame.recompute_fn)
