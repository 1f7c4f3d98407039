"""Ctrl-C and the stop button while a kernel runs on the simulator, as a KeyboardInterrupt.

simulator/executor/interrupts.h stops the launch. As soon as the launching call has returned to
Python, the interpreter calls `_interrupt`, so that this call raises the KeyboardInterrupt.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from jitloader.builds import Build
from toolchain import machine

# Functions of Python's C API that the runtime calls, in the order of `simulator_interrupt`.
_API = (
    *("Py_AddPendingCall", "PyObject_CallNoArgs"),
    *("PyGILState_Ensure", "PyGILState_Release", "PyOS_InterruptOccurred"),
)
_interrupt: Callable[[], None] | None = None  # kept here, because the runtime holds no reference


def listen(runtime: ctypes.CDLL) -> None:
    """Raise interrupts of launches on this runtime in the main thread."""
    global _interrupt
    take = runtime.simulator_take_stop
    take.restype = ctypes.c_char_p

    def interrupt() -> None:
        stop = take().decode(errors="replace")
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and handler is not signal.default_int_handler:
            handler(signal.SIGINT, sys._getframe(1))  # the program's own handler comes first
        if not stop:
            raise KeyboardInterrupt
        error = KeyboardInterrupt(_message(*stop.split("\n")))
        # A notebook shows only the message, without frames of the loader.
        error._render_traceback_ = lambda: [f"KeyboardInterrupt: {error}"]
        raise error

    _interrupt = interrupt
    api = (ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _API)
    runtime.simulator_interrupt(*api, ctypes.py_object(interrupt))


def _message(launch: str, thread: str = "", library: str = "", *offsets: str) -> str:
    """The message for a result of `simulator_take_stop`."""
    lines = (line_of(Path(library), int(offset, 16)) for offset in offsets)
    line = next(filter(None, lines), "")
    return f"{launch}, was stopped{line and f' at {line}'}{thread and f' in {thread}'}"


def line_of(library: Path, offset: int) -> str:
    """The line of the user's source that an instruction comes from, such as "add.cu:3"; or ""."""
    program, build = shutil.which("addr2line"), Build.read(library.parent)
    if not program or not build:
        return ""
    output = machine.output_of([program, "-i", "-e", str(library), hex(offset)]) or ""
    for file, line in re.findall(r"^(.+?):(\d+)", output, re.MULTILINE):  # the innermost first
        for label in build.kept:
            if f"/{file}".endswith(f"/{label.lstrip('/')}"):
                return f"{label}:{line}"
    return ""
