"""The other threads of this process: whether they compute."""

import contextlib
import threading
import time
from pathlib import Path


def computing() -> list[str]:
    """The other threads of this process that run, or wait for a core and nothing else."""
    running = []
    for stat in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended
            thread, _, rest = stat.read_text().partition(" (")
            if (
                rest.rpartition(") ")[2].startswith("R")
                and int(thread) != threading.get_native_id()
            ):
                running.append(thread)
    return running


def wait_for_others(looks: int = 1) -> bool:
    """Wait until none of them computes, at so many looks in a row; False if they go on."""
    quiet = 0
    for _ in range(250 + looks):
        quiet = 0 if computing() else quiet + 1
        if quiet == looks:
            return True
        time.sleep(0.02)
    return False
