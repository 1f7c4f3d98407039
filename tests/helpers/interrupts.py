"""An interrupt of a call that computes without an end, and how long that call goes on."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupted_after(seconds: float) -> Iterator[Callable[[], float]]:
    """Within, the process is interrupted once it has computed for so many seconds; what is given
    says how many have passed since then.

    Others may have the cores: before the interrupt the processor's time counts, so that the call
    has begun; after it whichever is less of the processor's time and the clock's.
    """
    over, sent = threading.Event(), []

    def interrupt() -> None:
        begun, latest = time.process_time(), time.perf_counter() + 60
        while time.process_time() - begun < seconds and time.perf_counter() < latest:
            if over.wait(0.01):
                return
        sent[:] = time.perf_counter(), time.process_time()
        os.kill(os.getpid(), signal.SIGINT)

    def since() -> float:
        return min(time.perf_counter() - sent[0], time.process_time() - sent[1])

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        yield since
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
