"""Ops inside torch.autocast, where x may be bfloat16 and a weight still float32."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from jitloader.gradients import fragment

__all__ = ["register"]

_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_KEYS |= torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def register(
    op: torch._ops.OpOverload, call: Callable[..., Any], keep: tuple[str, ...] = ()
) -> None:
    """Inside autocast, cast tensors of different floating types to the widest of them.

    That is what PyTorch's own ops of several tensors do there. One type is left alone: arithmetic
    is in float anyway, so a cast would cost time and give nothing.

    call: calls the op, perhaps with a gradient.
    keep: the names of arguments that stay as they are and have no say in the type.
    """
    kept = {i for i, argument in enumerate(op._schema.arguments) if argument.name in keep}

    def cast(keys: torch._C.DispatchKeySet, *arguments: Any) -> Any:
        cast_here = [i for i, a in enumerate(arguments) if i not in kept and _is_floating(a)]
        types = {arguments[i].dtype for i in cast_here}
        if len(types) > 1:
            widest = reduce(torch.promote_types, types)
            arguments = list(arguments)
            for i in cast_here:
                arguments[i] = arguments[i].to(widest)
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            return call(*arguments)

    library = fragment(op.namespace)
    for key in ("AutocastCPU", "AutocastCUDA"):
        library.impl(op._opname, cast, key, with_keyset=True)


def _is_floating(argument: Any) -> bool:
    return isinstance(argument, Tensor) and argument.is_floating_point()
