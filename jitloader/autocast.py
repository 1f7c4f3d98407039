"""Ops inside torch.autocast, where x may be bfloat16 and a weight still float32."""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from jitloader.gradients import fragment

__all__ = ["AUTOCAST_POLICIES", "register_autocast"]

# As PyTorch names its lists of ops that autocast treats alike.
AUTOCAST_POLICIES = ("promote", "lower_precision_fp")

_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_KEYS |= torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def register_autocast(
    op: torch._ops.OpOverload,
    call: Callable[..., Any],
    policy: str = "promote",
    keep: tuple[str, ...] = (),
) -> None:
    """Inside autocast, cast an op's floating tensors as PyTorch does for its own ops.

    call: calls the op, perhaps with a gradient.
    policy: "promote": tensors of different types are cast to the widest of these types, as for
        PyTorch's pointwise ops of several tensors; tensors of one type stay. (Arithmetic is in
        float anyway, so a further cast would gain nothing.) "lower_precision_fp": all but float64
        tensors are cast to autocast's type, as for PyTorch's matrix products.
    keep: the names of arguments that stay as they are and do not count for the type.
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
    """The same as at::autocast::is_eligible."""
    return t.device.type == device and t.dtype != torch.float64
