"""PyTorch's headers, parsed in the background once a listing has been built that includes them."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from functools import partial

from jitloader.cache import UNAWAITED, Cache
from toolchain import precompiled
from toolchain.precompiled import Parsed

_going_on: dict[str, Callable[[], None]] = {}  # by the name of the lock: what ends it


def parse(parsed: Parsed, cache: Cache) -> None:
    """Have them parsed, unless some process does so already; the end of this one ends it."""
    name = f"precompiled_{parsed.place.name}{UNAWAITED}"
    if name in _going_on:
        return
    read, write = os.pipe()
    _going_on[name] = partial(os.close, write)

    def run() -> None:
        try:
            with cache.lock(name, wait=False) as alone:
                if alone:
                    with cache.workplace(name, alone) as work:
                        precompiled.make_aside(parsed, work, read)
        finally:
            os.close(read)
            if end := _going_on.pop(name, None):
                end()

    threading.Thread(target=run, name=f"jitload {name}", daemon=True).start()


def _end() -> None:
    while _going_on:
        _going_on.popitem()[1]()


atexit.register(_end)
os.register_at_fork(after_in_child=_end)  # the parent's goes on as long as the parent
