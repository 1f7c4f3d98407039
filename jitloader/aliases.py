"""torch.ops under the names that sources give: `torch.ops.my_ops.add` beside `kernel.add`.

Where a source says TORCH_LIBRARY(my_ops, m), its operators are in a namespace of the build's own.
Python code for them names the fixed one, as in torch.library.register_fake("my_ops::add"). So the
operators of the newest build are defined there, too; each calls the handle's function, which
follows every edit. A fake, a gradient and so on that Python registers there stay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch

from jitloader.builds import Build
from jitloader.cache import free_in_child

# Where an operator may have an implementation; one under an alias has it where the build's has.
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
        schema: of it and its overloads; keys: where these have an implementation.
        call: the function of the kernel that was loaded last under this name.
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
    """Lead from the fixed names in a build's sources to functions of its kernel.

    Names that another library has defined stay that library's.

    function: of the kernel, by its name.
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
