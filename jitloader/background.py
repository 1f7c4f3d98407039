"""Work that goes on while the user's own code runs.

One build runs at a time: the next one stops it. Work that was started beside it goes on. All of it
ends with the process, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
from collections.abc import Callable

from jitloader.cache import free_in_child

# Seconds before work starts, so that a call that follows at once does not share the processor.
_PATIENCE = 0.5


class _Work:
    """Work that is done in a thread.

    do: is called with the read end of a pipe, which is closed when the work is to stop.
    failed: is called with the error that `do` raises, unless the work was stopped.
    before: work that is stopping, which it waits for.
    """

    def __init__(
        self,
        key: str,
        do: Callable[[int], None],
        failed: Callable[[Exception], None],
        before: _Work | None,
    ):
        self.key, self._do, self._failed, self._before = key, do, failed, before
        self._read, self._write = os.pipe()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"jitload {key}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def again(self) -> _Work:
        """The same work from its beginning, to start when this has stopped."""
        return _Work(self.key, self._do, self._failed, self)

    def stop(self) -> None:
        """Stop it, and wait until it has stopped."""
        self.let_go()
        self._thread.join()

    def let_go(self) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            os.close(self._write)

    def wait(self, seconds: float) -> bool:
        """Whether it is over within this time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            if self._before:
                self._before._thread.join()
                self._before = None
            if not self._stopped.wait(_PATIENCE):
                self._do(self._read)
        except Exception as error:
            if not self._stopped.is_set():
                self._failed(error)
        finally:
            os.close(self._read)


_work: _Work | None = None
_beside: dict[str, _Work] = {}  # by key
_changing = free_in_child(threading.Lock())


def start(key: str, do: Callable[[int], None], failed: Callable[[Exception], None]) -> None:
    """Start work, and stop any other.

    Does nothing while work with this key is running.
    """
    with _changing:
        if not (_work and _work.is_alive() and _work.key == key):
            _begin(_Work(key, do, failed, _work))


def start_again(key: str) -> None:
    """Restart the work with this key, which has more to do now, unless it was stopped."""
    with _changing:
        if _work and _work.key == key and not _work.is_stopped():
            _begin(_work.again())


def start_beside(key: str, do: Callable[[int], None]) -> None:
    """Start work that only the end of the process stops, unless it is running already."""
    with _changing:
        if not (key in _beside and _beside[key].is_alive()):
            _beside[key] = _Work(key, do, lambda error: None, None)
            _beside[key].start()


def _begin(work: _Work) -> None:
    global _work
    if _work:
        _work.let_go()
    _work = work
    work.start()


def stop() -> None:
    """Stop the running build."""
    with _changing:
        if _work:
            _work.stop()


def is_over(lifeline: int) -> bool:
    """Whether the work that was given this end of a pipe is to stop."""
    return bool(select.select([lifeline], [], [], 0)[0])


def wait(seconds: float) -> bool:
    """Wait at most this time; return whether no build is running."""
    work = _work
    return work is None or work.wait(seconds)


def _forget() -> None:
    """In a forked process nothing runs; and it must not hold open the parent's pipes."""
    global _work
    for work in (_work, *_beside.values()):
        with contextlib.suppress(OSError):
            if work:
                work.let_go()
    _work = None
    _beside.clear()


def end() -> None:
    """Stop everything, and give it time to remove the files that it has written so far."""
    for work in _beside.values():
        work.let_go()
    stop()
    for work in _beside.values():
        work.wait(2)


atexit.register(end)
os.register_at_fork(after_in_child=_forget)
