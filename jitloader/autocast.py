"""Ops inside torch.autocast, where x may be bfloat16 and a weight still float32."""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from jitloader.gradients import fragment

__all__ = ["AUTOCAST_POLICIES", "register_autocast"]

# In the words of PyTorch's lists of what autocast does to its own ops.
AUTOCAST_POLICIES = ("promote", "lower_precision_fp")

_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_KEYS |= torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def register_autocast(
    op: torch._ops.OpOverload,
    call: Callable[..., Any],
    policy: str = "promote",
    keep: tuple[str, ...] = (),
) -> None:
    """Inside autocast, cast an op's floating tensors as PyTorch does those of its own ops.

    call: calls the op, perhaps with a gradient.
    policy: "promote": tensors of different types take the widest of these, and those of one type
        are left alone. So do PyTorch's pointwise ops of several tensors; where arithmetic is in
        float anyway, another cast would cost time and give nothing. "lower_precision_fp": all take
        autocast's type, but for float64, which stays. So do products.
    keep: the names of arguments that stay as they are and have no say in the type.
    """
    kept = {i for i, argument in enumerate(op._schema.arguments) if argument.name in keep}

    def cast(device: str, keys: torch._C.DispatchKeySet, *arguments: Any) -> Any:
        cast_here = [i for i, a in enumerate(arguments) if i not in kept and _is_floating(a)]
        types = {arguments[i].dtype for i in cast_here}
        if policy == "lower_precision_fp":
            cast_here = [i for i in cast_here if _is_eligible(arguments[i], device)]
            types = {torch.get_autocast_dtype(device)}
        if types:
            wanted = reduce(torch.promote_types, types)
            arguments = list(arguments)
            for i in cast_here:
                arguments[i] = arguments[i].to(wanted)
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            return call(*arguments)

    library = fragment(op.namespace)
    for device in ("cpu", "cuda"):
        key = f"Autocast{device.upper()}"
        library.impl(op._opname, partial(cast, device), key, with_keyset=True)


def _is_floating(argument: Any) -> bool:
    return isinstance(argument, Tensor) and argument.is_floating_point()


def _is_eligible(t: Tensor, device: str) -> bool:
    """As at::autocast::is_eligible has it."""
    return t.device.type == device and t.dtype != torch.float64
