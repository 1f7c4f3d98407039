"""Run a command at idle priority, and end it when the process that started it ends.

    python idle.py COMMAND...

It ends when its standard input ends. That is a pipe, whose other end the starting process closes,
at its end at the latest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

COMMAND = (sys.executable, "-I", "-S", __file__)


def yield_to_others() -> None:
    """From now on run this process, and those that it starts, at idle priority.

    Linux may first divide cores among sessions, so a session that this process leads is set, too.
    """
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    with contextlib.suppress(AttributeError, OSError):  # only on Linux
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("19")


def run(command: list[str]) -> int:
    """Run the command and return its exit status."""
    yield_to_others()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)

    def end_with_input() -> None:
        os.read(0, 1)
        # ninja passes it on; a compiler driver may leave its compiler running, in the same group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)

    threading.Thread(target=end_with_input, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    os._exit(run(sys.argv[1:]))  # the thread is still reading
