"""Run a command when nobody else wants the cores, and no longer than whoever started it lives.

    python idle.py COMMAND...

It ends when its standard input does: that is a pipe, and whoever holds the other end closes it or
dies.
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
    """From now on this process, and those that it starts, take what others leave of the cores.

    Linux may share them out by sessions first: so may its session, if this process leads one.
    """
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    with contextlib.suppress(AttributeError, OSError):  # only Linux has it
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("19")


def run(command: list[str]) -> int:
    """Run it; its exit status."""
    yield_to_others()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)

    def end_with_input() -> None:
        os.read(0, 1)
        # ninja passes it on; a compiler's driver leaves its compiler running, in the same group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)

    threading.Thread(target=end_with_input, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    os._exit(run(sys.argv[1:]))  # the thread still reads
