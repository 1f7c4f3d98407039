"""Tracebacks end at the user's own line: frames of the loader, of the lab and of the ops' modules
below it would not help the user.

This holds in a notebook, and in plain Python for uncaught errors, unless Python runs in development
mode (python -X dev). An error that is caught has its whole traceback.

An error from the user's own function is shown with the user's frames, wherever it was called from.
If a module of the lab or of an op failed without a `raise` of its own, that is not an answer to the
user's call but a bug in that module: then its frames are shown.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from functools import cache, partial
from opcode import opmap
from pathlib import Path
from types import TracebackType

import torch

from playground_folder.place import LIBRARY
from toolchain.sources import ROOT

_LOADER = tuple(f"{LIBRARY}/{room}" for room in ("jitload.py", "jitloader/", "toolchain/"))
_ROOMS = (_LOADER, (f"{LIBRARY}/lab/",), (f"{ROOT}/kernels/",))
_TORCH = f"{Path(torch.__file__).parent}/"
_PLACES = ("stdlib", "platstdlib", "purelib", "platlib")


@cache
def _libraries() -> tuple[str, ...]:
    """The folders of other libraries' files."""
    import sysconfig  # late: it would slow the import

    return (_TORCH, "<frozen", *(f"{sysconfig.get_path(place)}/" for place in _PLACES))


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Errors that are raised in this block are shown as this module describes."""
    try:
        yield
    except Exception:
        shorten_in_ipython()
        raise


def device_hint(error: BaseException) -> str:
    """What to write if PyTorch was asked for a device "cuda" and there is none; else ""."""
    if not re.search(r"not compiled with CUDA|no NVIDIA driver|no CUDA GPUs", str(error)):
        return ""
    return (
        "There is no GPU here: device=jitload.device() is where kernels run, a GPU or else the CPU"
    )


def in_one_line(stop: KeyboardInterrupt, what: str) -> None:
    """Show this interrupt as one line; code that catches it sees no difference."""
    stop.args = (what,)
    stop._render_traceback_ = partial(_line, what)


def _line(what: str) -> list[str]:
    return [f"KeyboardInterrupt: {what}"]


def _room_of(entry: TracebackType) -> tuple[str, ...] | None:
    """The project package that a frame is in; None if it is the user's or another library's."""
    file = entry.tb_frame.f_code.co_filename
    return next((room for room in _ROOMS if file.startswith(room)), None)


def _shown(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the project's frames and the frames of PyTorch that they called."""
    entries, ours, at_fault = [], False, None
    entry = traceback
    while entry:
        file, room = entry.tb_frame.f_code.co_filename, _room_of(entry)
        below_ours = ours and file.startswith(_TORCH)
        ours = below_ours or room is not None
        if not below_ours:
            entries.append((entry, room))
        if room or not file.startswith(_libraries()):  # the last one is where the error arose
            at_fault = None if room in (None, _LOADER) or _is_at_raise(entry) else room
        entry = entry.tb_next
    shown = None
    for entry, room in reversed(entries):
        if room is None or room is at_fault:
            shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shown or traceback


def _is_at_raise(entry: TracebackType) -> bool:
    """Whether a frame is at a `raise` statement."""
    return entry.tb_frame.f_code.co_code[entry.tb_lasti] == opmap["RAISE_VARARGS"]


@contextlib.contextmanager
def _shortened(error: BaseException | None) -> Iterator[None]:
    """In this block an error has a shorter traceback, and so do its causes."""
    whole: list[tuple[BaseException, TracebackType | None]] = []
    while error is not None and all(error is not known for known, _ in whole):
        whole.append((error, error.__traceback__))
        error = error.__cause__ or error.__context__
    try:
        for each, traceback in whole:
            each.__traceback__ = _shown(traceback)
        yield
    finally:
        for each, traceback in whole:
            each.__traceback__ = traceback


def _shorten_what_nobody_caught() -> None:
    before = sys.excepthook

    def excepthook(kind: type, error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt) and hasattr(error, "_render_traceback_"):
            print(*error._render_traceback_(), sep="\n", file=sys.stderr)
            return
        if hint := device_hint(error):
            error.add_note(hint)
        with _shortened(error):
            before(kind, error, error.__traceback__)

    sys.excepthook = excepthook


def shorten_in_ipython() -> None:
    """Make this process's IPython, if it runs, show errors as this module describes.

    It may start after this module was imported, so this is called at each error.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    shows = getattr(shell, "InteractiveTB", None)
    if shows is None or hasattr(shows.structured_traceback, "shortens") or sys.flags.dev_mode:
        return
    before = shows.structured_traceback

    def structured_traceback(
        kind: type,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
        *args: object,
        **kwargs: object,
    ) -> list[str]:
        with _shortened(error):
            return before(kind, error, _shown(traceback), *args, **kwargs)

    structured_traceback.shortens = True
    shows.structured_traceback = structured_traceback


if not sys.flags.dev_mode:
    _shorten_what_nobody_caught()
    shorten_in_ipython()
