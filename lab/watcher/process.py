"""The parent's side of `lab.watcher.worker`: starts it, asks it, and ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe

import jitload
from lab.checker.trial import HINTS, signal_words
from lab.watcher.subject import Subject

OUTPUT = 2000  # characters of what it printed that are told


class WorkerProcess:
    """A worker, for as long as it lives. It ends with this process."""

    def __init__(self, subject: Subject) -> None:
        self.connection, theirs = Pipe()
        lifeline, self._lifeline = os.pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        given = theirs.fileno(), lifeline
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lab.watcher.worker", *map(str, given)],
            env=jitload.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the notebook's stop button is not for it
            pass_fds=given,
        )
        theirs.close()
        os.close(lifeline)
        self.ask(subject)

    def ask(self, message: object) -> None:
        """Send a step; nothing happens if the process has ended."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def interrupt(self) -> None:
        """Stop the build that the process is running."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)

    def kill(self) -> None:
        """End it at once, with the compilers that it has started. Another thread may do so."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._process.wait()
        self.connection.close()
        os.close(self._lifeline)
        self._output.close()

    def end(self) -> str:
        """How the process ended, in words, with its last output."""
        status = self._process.wait()
        how = f"ended with status {status}"
        if status < 0:
            hint = HINTS.get(signal.Signals(-status).name, "")
            how = f"crashed: {signal_words(-status)}. {hint}".rstrip()
        return "\n".join(filter(None, [how, self._printed()]))

    def _printed(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace").strip()[-OUTPUT:]
