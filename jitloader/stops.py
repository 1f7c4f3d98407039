"""Ctrl-C and the stop button while a kernel runs on the simulator: what Python raises then.

simulator/executor/interrupts.h stops the launch. As soon as the call that launched is back in
Python, the interpreter calls `_interrupt`, and so the KeyboardInterrupt comes out of that call.
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

# What the runtime calls of Python's C API, in the order of `simulator_interrupt`.
_API = (
    *("Py_AddPendingCall", "PyObject_CallNoArgs"),
    *("PyGILState_Ensure", "PyGILState_Release", "PyOS_InterruptOccurred"),
)
_interrupt: Callable[[], None] | None = None  # the runtime keeps no reference to it


def listen(runtime: ctypes.CDLL) -> None:
    """Have interrupts of launches on this runtime raised in the main thread."""
    global _interrupt
    take = runtime.simulator_take_stop
    take.restype = ctypes.c_char_p

    def interrupt() -> None:
        stop = take().decode(errors="replace")
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and handler is not signal.default_int_handler:
            handler(signal.SIGINT, sys._getframe(1))  # the program's own comes first
        if not stop:
            raise KeyboardInterrupt
        error = KeyboardInterrupt(_message(*stop.split("\n")))
        # What a notebook shows: the message alone, none of our frames.
        error._render_traceback_ = lambda: [f"KeyboardInterrupt: {error}"]
        raise error

    _interrupt = interrupt
    api = (ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _API)
    runtime.simulator_interrupt(*api, ctypes.py_object(interrupt))


def _message(launch: str, thread: str = "", library: str = "", *offsets: str) -> str:
    """The sentence for what `simulator_take_stop` says."""
    lines = (line_of(Path(library), int(offset, 16)) for offset in offsets)
    line = next(filter(None, lines), "")
    return f"{launch}, was stopped{line and f' at {line}'}{thread and f' in {thread}'}"


def line_of(library: Path, offset: int) -> str:
    """The line of the user's source, as in "add.cu:3", that an instruction is of; else ""."""
    program, build = shutil.which("addr2line"), Build.read(library.parent)
    if not program or not build:
        return ""
    output = machine.output_of([program, "-i", "-e", str(library), hex(offset)]) or ""
    for file, line in re.findall(r"^(.+?):(\d+)", output, re.MULTILINE):  # the innermost first
        for label in build.kept:
            if f"/{file}".endswith(f"/{label.lstrip('/')}"):
                return f"{label}:{line}"
    return ""
