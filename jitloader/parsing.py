"""PyTorch's headers, parsed in the background once a listing has been built that includes them."""

from __future__ import annotations

import atexit
import os
import threading

from jitloader.cache import UNAWAITED, Cache
from toolchain import precompiled
from toolchain.precompiled import Parsed

_going_on: dict[str, tuple[threading.Thread, int]] = {}  # with what, closed, ends it


def parse(parsed: Parsed, cache: Cache) -> None:
    """Have them parsed, unless some process does so already; the end of this one ends it."""
    name = f"precompiled_{parsed.place.name}{UNAWAITED}"
    if name in _going_on:
        return
    read, write = os.pipe()

    def run() -> None:
        try:
            with cache.lock(name, wait=False) as alone:
                if alone:
                    with cache.workplace(name, alone) as work:
                        precompiled.make_aside(parsed, work, read)
        finally:
            os.close(read)
            if name in _going_on:
                os.close(_going_on.pop(name)[1])

    thread = threading.Thread(target=run, name=f"jitload {name}", daemon=True)
    _going_on[name] = thread, write
    thread.start()


def _let_go() -> list[threading.Thread]:
    ended = [_going_on.pop(name) for name in list(_going_on)]
    for _, write in ended:
        os.close(write)
    return [thread for thread, _ in ended]


def _end() -> None:
    for thread in _let_go():
        thread.join(2)  # what it has written so far is large, and goes


atexit.register(_end)
os.register_at_fork(after_in_child=_let_go)  # the parent's goes on as long as the parent
