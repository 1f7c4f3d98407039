"""Errors are shown up to the user's own line: the loader's frames below it would tell them nothing.

In a notebook, errors that passed `hide` are shown so, and in plain Python all that nobody caught,
unless Python runs in development mode (python -X dev). Who catches one has its whole traceback.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType

import torch

_ROOT = Path(__file__).resolve().parent.parent
_OURS = tuple(f"{_ROOT}/{place}" for place in ("jitload.py", "jitloader/", "toolchain/"))
_TORCH = f"{Path(torch.__file__).parent}/"


def hide(error: BaseException) -> None:
    """Have IPython show this error without the loader's frames."""
    if hasattr(builtins, "__IPYTHON__") and not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = _rendered  # which IPython asks for


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """What is raised within is shown without the loader's frames."""
    try:
        yield
    except Exception as error:
        hide(error)
        raise


def in_one_line(stop: KeyboardInterrupt, what: str) -> None:
    """Have this interrupt shown as one line; for those who catch it, it is as any other."""
    stop.args = (what,)
    stop._render_traceback_ = partial(_line, what)


def _line(what: str) -> list[str]:
    return [f"KeyboardInterrupt: {what}"]


def _rendered() -> list[str]:
    """The error that is being handled, in IPython's own way; the error must not refer to itself."""
    error, shell = sys.exc_info()[1] or sys.last_value, builtins.get_ipython()
    return shell.InteractiveTB.structured_traceback(type(error), error, _shortened(error))


def _shortened(error: BaseException) -> TracebackType | None:
    """Its traceback without the loader's frames, and without those of PyTorch that it called."""
    entries, ours = [], False
    entry = error.__traceback__
    while entry:
        file = entry.tb_frame.f_code.co_filename
        below_ours = ours and file.startswith(_TORCH)
        ours = below_ours or file.startswith(_OURS)
        if not ours:
            entries.append(entry)
        entry = entry.tb_next
    shown = None
    for entry in reversed(entries):
        shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shown or error.__traceback__


def _shorten_what_nobody_caught() -> None:
    before = sys.excepthook

    def excepthook(kind: type, error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt) and hasattr(error, "_render_traceback_"):
            print(*error._render_traceback_(), sep="\n", file=sys.stderr)
            return
        whole, shown = error.__traceback__, _shortened(error)
        try:
            before(kind, error.with_traceback(shown), shown)
        finally:
            error.__traceback__ = whole

    sys.excepthook = excepthook


if not sys.flags.dev_mode:
    _shorten_what_nobody_caught()
