"""PyTorch's own: the reference, as it is and through torch.compile."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lab.rivals.implementation import Implementation

if TYPE_CHECKING:
    from reference import Op


def eager(op: Op) -> Implementation:
    """PyTorch's own: the reference in the type of its inputs."""
    return Implementation("eager", **_as_used(op))


def compiled(op: Op) -> Implementation:
    """The reference through torch.compile, tuned for the one shape that it is called with.

    Clears what torch.compile keeps (`torch.compiler.reset`): it compiles a function for eight
    shapes at most.
    """
    torch.compiler.reset()
    used = _as_used(op)
    used["function"] = torch.compile(
        used["function"], mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False
    )
    return Implementation("compile", **used, first_call=keep_buffers)


def _as_used(op: Op) -> dict[str, Callable]:
    """The reference as people call PyTorch: without the seed, so that PyTorch draws the numbers."""
    if "seed" not in inspect.signature(op.function).parameters:
        return {"function": op.function}

    def seedless(**given: object) -> Tensor | tuple[Tensor, ...]:
        return op.function(**given | {"seed": None})

    return {"function": seedless, "judged": op.function}


def keep_buffers() -> AbstractContextManager:
    """Compile a backward pass that can run again, as timing needs: it frees no buffer."""
    import torch._functorch.config

    return torch._functorch.config.patch(donated_buffer=False)
