"""A way to compute an op: ours, PyTorch's, or another library's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from reference import Op


@dataclass(frozen=True)
class Implementation:
    """One way to compute an op.

    label: its name in tables and figures.
    function: takes the op's inputs and options by name.
    ours: whether it is one of this project's kernels; the others are PyTorch's.
    first_call: the context that its first call needs, where that call compiles it.
    judged: where `function` draws random numbers of its own, the same with the numbers of the op's
        seed. Results are judged by it; time is `function`'s.
    gradients_in_forward: whether its forward pass computes the gradients. Then its backward pass
        alone is no work that could be timed.
    """

    label: str
    function: Callable[..., Tensor | tuple[Tensor, ...]]
    ours: bool = False
    first_call: Callable[[], AbstractContextManager] = nullcontext
    judged: Callable[..., Tensor | tuple[Tensor, ...]] | None = None
    gradients_in_forward: bool = False


def ours(op: Op, version: str) -> Implementation:
    """The version `version` of `kernels/NAME`, labelled "ours:VERSION"."""
    function = getattr(importlib.import_module(f"kernels.{op.name}"), op.name)
    return Implementation(
        f"ours:{version}", lambda **given: function(**given, version=version), ours=True
    )
