"""The progress of builds: passed to listeners, or printed on a line if there are none."""

from __future__ import annotations

import builtins
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class BuildEvent:
    """What `listeners` are called with.

    Attributes:
        name, target: of the kernel; its flags, and "for lab.check", follow the name in brackets.
        stage: "starting", then what is being compiled, as in "1 of 3: layer_norm.cu", with what
            takes long in brackets.
        seconds: since the build began.
        state: "building" (at once, and four times a second), then "done" or "failed".
        notes: parts of the sources and flags that have another meaning for this target than for
            nvcc; at the end also wrong formats of printf.
    """

    name: str
    target: str
    stage: str
    seconds: float
    state: str
    notes: tuple[str, ...] = ()


BuildEvent.__module__ = "jitload"  # its public module
Listener = Callable[[BuildEvent], None]

# Called by the thread that builds, so they must not load kernels.
listeners: list[Listener] = []
_prints = True


def listen(listener: Listener) -> None:
    """Call `listener` with the events of every build from now on. Builds then print no line.

    The thread that builds calls it, so it must not load kernels.
    """
    listeners.append(listener)


def unlisten(listener: Listener) -> None:
    """Stop calling it; does nothing if it is no listener."""
    with contextlib.suppress(ValueError):
        listeners.remove(listener)


def announce(wanted: bool) -> bool:
    """Set whether builds print a line if there is no listener; returns whether they did."""
    global _prints
    before, _prints = _prints, wanted
    return before


@contextlib.contextmanager
def unannounced() -> Iterator[None]:
    """In this block no build prints a line, as after `announce(False)`."""
    before = announce(False)
    try:
        yield
    finally:
        announce(before)


class _Report:
    """The progress of a build, or of several that are reported as one."""

    def __init__(self) -> None:
        self._started, self._last = time.perf_counter(), ""
        self._of: tuple[str, str, str, tuple[str, ...]] | None = None
        self._noted: tuple[str, ...] = ()  # a part made ahead may add some before the build begins

    def begin(self, name: str, target: str, notes: Iterable[str], expected: str) -> None:
        """Report that a build begins, unless an earlier one has begun."""
        is_first, self._of = self._of is None, (name, target, expected, tuple(notes))
        if is_first:
            self.tell("starting")

    def tell(self, stage: str, state: str = "building") -> None:
        self._last = stage
        name, target, expected, notes = self._of
        because = f" ({expected})" if expected else ""
        seconds = time.perf_counter() - self._started
        all_notes = (*notes, *self._noted)
        event = BuildEvent(name, target, f"{stage}{because}", seconds, state, all_notes)
        for listener in list(listeners) or ([_print_line] if _prints else []):
            listener(event)

    def note(self, notes: Iterable[str]) -> None:
        self._noted = (*self._noted, *notes)

    def end(self, outcome: str) -> None:
        if self._of:
            self.tell(self._last, outcome)


class _Unreported(_Report):
    stage = "starting"

    def note(self, notes: Iterable[str]) -> None:
        pass

    def tell(self, stage: str, state: str = "building") -> None:
        self.stage = stage


_here = threading.local()  # .report: of this thread's builds


@contextlib.contextmanager
def reported_as_one() -> Iterator[None]:
    """Report the builds in this block as one, which has failed if the block raises."""
    if getattr(_here, "report", None):
        yield
        return
    _here.report, outcome = _Report(), "failed"
    try:
        yield
        outcome = "done"
    finally:
        report, _here.report = _here.report, None
        report.end(outcome)


def note(notes: Iterable[str]) -> None:
    """Add notes to the end of the report of this thread's build, if there is one."""
    if report := getattr(_here, "report", None):
        report.note(notes)


@contextlib.contextmanager
def unreported() -> Iterator[Callable[[], str]]:
    """In this block, do not report this thread's builds. Yields a function that returns the stage
    of the last one, for callers that wait for it."""
    before, _here.report = getattr(_here, "report", None), _Unreported()
    try:
        yield partial(getattr, _here.report, "stage")
    finally:
        _here.report = before


@contextlib.contextmanager
def announced(
    name: str, target: str, notes: Iterable[str] = (), expected: str = ""
) -> Iterator[Callable[[str], None]]:
    """Report the progress of a build. Yields a function that reports a stage.

    expected: why it takes long, shown with every stage.
    """
    with reported_as_one():
        _here.report.begin(name, target, notes, expected)
        yield _here.report.tell


def _print_line(event: BuildEvent) -> None:
    """Print one line per build: on stdout in a notebook, where stderr looks like a failure."""
    stream = sys.stdout if hasattr(builtins, "__IPYTHON__") else sys.stderr
    if event.state != "building":
        outcome = {"done": "done in", "failed": "failed after"}[event.state]
        lines = [f" {outcome} {event.seconds:.1f} s"]
        notes = event.notes if event.state == "done" else ()
        lines += [f"jitload: {event.name}: {note}" for note in notes]
        print(*lines, sep="\n", file=stream, flush=True)
    elif event.stage.startswith("starting"):
        because = event.stage.removeprefix("starting")
        text = f"jitload: building {event.name} for {event.target}{because} ..."
        print(text, end="", file=stream, flush=True)
