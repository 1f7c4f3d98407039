"""Imports without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """In this block the garbage collector is off: imports leave no garbage, and a full collection
    takes 80 ms to go through PyTorch's objects."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
