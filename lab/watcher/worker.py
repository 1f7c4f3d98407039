"""The process that builds, measures and checks what is followed, step by step, as it is asked.

All kernels run in this process. If one hangs or crashes it, `lab.watcher.process` starts another
process.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection

import torch

import jitload
from lab.watcher.result import Checked, Failure, Measured, Opened, Predicted, Use
from lab.watcher.settings import Settings
from lab.watcher.subject import Subject

NICENESS = 10  # a cell that runs beside it comes first


class Worker:
    """Answers the steps that come over a connection, one after the other.

    A step is (name of a method, its arguments). While it runs, BuildEvents are sent; then its
    answer: what the method returns, or a Failure.
    """

    def __init__(self, connection: Connection, subject: Subject) -> None:
        self.connection, self.subject = connection, subject
        self._sending, self._at_work, self._has_built = threading.Lock(), False, False

    def serve(self) -> None:
        signal.signal(signal.SIGINT, self._interrupt)
        jitload.listen(self._tell)
        while True:
            try:
                name, arguments = self.connection.recv()
            except EOFError:
                return
            answer = self._answer(name, arguments)
            if isinstance(answer, Failure) and not _gpu_works():
                answer = replace(answer, ends_process=True)
            self._send(answer)

    def open(self) -> Opened:
        """Load the kernels as their files are now."""
        started, self._has_built = time.perf_counter(), False
        recipes = self.subject.load()
        seconds = time.perf_counter() - started
        return Opened(seconds, self._has_built, self.subject.versions(), tuple(recipes))

    def measure(self, settings: Settings | None) -> Measured:
        """Error and time."""
        measured = self.subject.measure(settings)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # the notebook's process may need the memory
        return measured

    def launched(self, settings: Settings | None) -> tuple[Use, ...]:
        """What the kernels that run take of a GPU."""
        return self.subject.launched(settings)

    def instrument(self) -> None:
        """Build for the checker."""
        self.subject.instrument()

    def check(self, settings: Settings | None, seconds: float) -> Checked:
        """Findings and traffic."""
        return self.subject.check(settings, seconds)

    def predict(self, settings: Settings | None, seconds: float) -> Predicted:
        """The time on a GPU that is not there."""
        return self.subject.predict(settings, seconds)

    def _answer(self, name: str, arguments: tuple) -> object:
        self._at_work = True
        try:
            return getattr(self, name)(*arguments)
        except KeyboardInterrupt:
            return Failure("stopped", f"{name} was stopped")
        except Exception as error:
            return failure_of(error)
        finally:
            self._at_work = False

    def _interrupt(self, *_: object) -> None:
        """Ends a build that is no longer wanted; between two steps there is nothing to end."""
        if self._at_work:
            self._at_work = False
            raise KeyboardInterrupt

    def _tell(self, event: jitload.BuildEvent) -> None:
        self._has_built = True
        self._send(event)

    def _send(self, message: object) -> None:
        with self._sending:
            self.connection.send(message)


def failure_of(error: Exception) -> Failure:
    """An exception in words, with the user's line where it names one."""
    if isinstance(error, jitload.CompileError):
        file = jitload.label(error.path) if error.path else ""
        return Failure("compile", str(error), file, error.line or 0)
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, torch.AcceleratorError):  # the rest is for debugging by hand
        text = text.partition("\n")[0]
    return Failure("raised", text)


def _gpu_works() -> bool:
    """Tests the GPU: after an illegal memory access its context can run nothing more."""
    if not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _end_with(lifeline: int) -> None:
    """End this process, and the compilers that it has started, when its parent has ended."""
    os.read(lifeline, 1)  # nobody writes: it returns when the other end is closed
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main(descriptor: int, lifeline: int) -> None:
    """descriptor: of the connection, over which the subject comes first. lifeline: of a pipe."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    jitload.announce(False)
    connection = Connection(descriptor)
    Worker(connection, connection.recv()).serve()
    sys.stdout.flush()
    os._exit(0)  # a broken GPU context may not survive an orderly end


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
