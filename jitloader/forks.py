"""Locks that a forked process finds free: no other thread is left in it to release them."""

from __future__ import annotations

import os
import threading
import weakref

_locks: weakref.WeakSet = weakref.WeakSet()


def free_in_child(lock: threading.Lock | threading.RLock) -> threading.Lock | threading.RLock:
    """The lock, which is free in processes that this one forks."""
    _locks.add(lock)
    return lock


def _free_all() -> None:
    for lock in _locks:
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_free_all)
