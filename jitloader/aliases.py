"""torch.ops under the names that sources give: `torch.ops.my_ops.add` beside `kernel.add`.

If a source has TORCH_LIBRARY(my_ops, m), its operators are in a namespace of the build's own.
Python code names the fixed namespace, as in torch.library.register_fake("my_ops::add"). So the
operators of the newest build are defined there, too; each calls the handle's function, which
follows every edit. Fakes, gradients and so on that Python registers there stay registered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch

from jitloader.builds import Build
from jitloader.cache import free_in_child

# Dispatch keys; an alias has implementations for those keys for which the build's operator has.
_KEYS = (
    *("CPU", "CUDA", "Meta", "SparseCPU", "SparseCUDA", "QuantizedCPU", "QuantizedCUDA"),
    *("CompositeImplicitAutograd", "CompositeExplicitAutograd"),
    *("CompositeExplicitAutogradNonFunctional", "BackendSelect", "ADInplaceOrView"),
    *("Autograd", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA"),
)


@dataclass
class _Alias:
    """One operator under a fixed name.

    Attributes:
        schema: one for each overload; keys: the dispatch keys that each has an implementation for.
        call: the function of the kernel that was last loaded under this name.
    """

    library: torch.library.Library
    schema: list[str]
    keys: list[tuple[str, ...]]
    call: Callable

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.call(*args, **kwargs)


_aliases: dict[tuple[str, str], _Alias] = {}
_lock = free_in_child(threading.Lock())


def offer(build: Build, function: Callable[[str], Callable]) -> None:
    """Define the operators that a build's sources name, which call functions of its kernel.

    Operators that another library has defined stay as they are.

    function: gives the kernel's function of a name.
    """
    with _lock:
        for namespace, ops in build.aliases.items():
            for op in ops:
                packet = getattr(getattr(torch.ops, build.name), op, None)
                if packet is not None:
                    _offer(namespace, op, packet, function(op))


def _offer(
    namespace: str, op: str, packet: torch._ops.OpOverloadPacket, function: Callable
) -> None:
    overloads = [getattr(packet, name) for name in packet.overloads()]
    schema = [str(overload._schema).partition("::")[2] for overload in overloads]
    keys = [tuple(filter(_has(overload), _KEYS)) for overload in overloads]
    known = _aliases.get((namespace, op))
    if known and (known.schema, known.keys) == (schema, keys):
        known.call = function
        return
    if known:
        known.library._destroy()
        del _aliases[namespace, op]
    elif torch._C._jit_get_operation(f"{namespace}::{op}")[0] is not None:
        return
    library = torch.library.Library(namespace, "FRAGMENT")
    _aliases[namespace, op] = alias = _Alias(library, schema, keys, function)
    for overload, its_schema, its_keys in zip(overloads, schema, keys, strict=True):
        library.define(its_schema, tags=tuple(overload.tags))
        for key in its_keys:
            library.impl(its_schema.partition("(")[0], alias.__call__, key)


def _has(overload: torch._ops.OpOverload) -> Callable[[str], bool]:
    name = overload.name()
    return lambda key: torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
