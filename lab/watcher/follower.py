"""Follows a kernel: watches its files; has each version built, measured and checked; reports."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import jitload
from lab.watcher.files import SourceFiles
from lab.watcher.history import History
from lab.watcher.process import WorkerProcess
from lab.watcher.result import Checked, Failure, Measured, Opened, Predicted, Result, Version
from lab.watcher.settings import Settings
from lab.watcher.subject import Subject

SECONDS = 10.0  # that a call may take
PERIOD = 0.04  # seconds between two looks at the files
QUIET = 0.2  # seconds after a cell, for the next may follow at once
PATIENCE = 2.0  # seconds that a step which is no longer wanted has to end
REPORTING = 30.0  # seconds that a check may take besides its kernels

STEPS = ("open", "measure", "launched", "instrument", "check", "predict")
ON_GPU, ON_CPU = "launched", "predict"  # steps that only one of them has
WITHOUT_TIMES = ("open", "instrument", "check")  # what is left for a call that hangs
RUNS_KERNELS = ("measure", "launched", "check", "predict")
DOING = {
    "open": "building",
    "measure": "measuring",
    "launched": "asking what the kernels take",
    "instrument": "building for lab.check",
    "check": "checking",
    "predict": "predicting the time on a GPU",
}


@dataclass(frozen=True)
class State:
    """What there is to show.

    doing: what goes on now, in words; "" while all is known that there is to know.
    result: of the version that the files hold now. ghosts: of those before, oldest first.
    pinned: the version that stays among them. choices: the versions of the op, once they are known.
    """

    doing: str
    result: Result
    ghosts: tuple[Result, ...] = ()
    pinned: Version | None = None
    choices: tuple[str, ...] = ()

    @property
    def measured(self) -> str:
        """The version of the op that is measured; "" for a call of the user's."""
        chosen = self.result.settings and self.result.settings.version
        return chosen or (self.choices[-1] if self.choices else "")

    @property
    def untouched_by(self) -> list[str]:
        """The versions of the op that were edited while another is measured."""
        return self.result.version.of_others(self.measured, self.choices)


class Follower(threading.Thread):
    """A thread that ends with `close`. All other methods may be called from any thread.

    subject: what is followed. settings: on what it is measured.
    seconds: that a call may take; then it counts as hung.
    tell: is called in this thread with a State, as often as there is something new.
    """

    def __init__(
        self,
        subject: Subject,
        settings: Settings | None,
        tell: Callable[[State], None],
        seconds: float,
        history: History | None = None,
    ) -> None:
        super().__init__(name="lab.live", daemon=True)
        self.history = history or History()
        self._subject, self._settings, self._tell, self._seconds = subject, settings, tell, seconds
        self._wanted = settings  # by the user, from now on
        self._files = SourceFiles(subject.recipes(), subject.modules)
        self._worker: WorkerProcess | None = None
        self._result: Result | None = None
        self._todo: list[str] = []
        self._step, self._since, self._limit = "", 0.0, float("inf")
        self._outdated = False  # what the step works on
        self._waits = False  # for a cell to end
        self._has_news = False  # of another thread's making
        self._choices: tuple[str, ...] = ()
        self._on_gpu = jitload.default_target() == "cuda"
        self._lock = threading.Lock()  # of the three below, and of who ends the worker
        self._cell_runs, self._quiet_from, self._for_a_cell = False, 0.0, False
        self._closing = threading.Event()

    # ---- from other threads

    def choose(self, settings: Settings) -> None:
        """Measure on something else."""
        self._wanted = settings

    def pin(self) -> None:
        """Keep the present version among the ghosts, or if it is the pinned one, let go of it."""
        if self._result:
            version = self._result.version
            self.history.pinned = None if self.history.pinned == version else version
            self._has_news = True

    def go_back(self, number: int) -> list[str]:
        """Write the files of an earlier version: see `History.restore`."""
        return self.history.restore(number, self._files.contents)

    def begin_cell(self, info: object = None) -> None:
        """A cell begins: no kernel runs here until it has ended."""
        with self._lock:
            self._cell_runs = True
            if self._worker and self._step in RUNS_KERNELS:
                self._for_a_cell = True
                self._worker.kill()

    def end_cell(self, result: object = None) -> None:
        with self._lock:
            self._cell_runs, self._quiet_from = False, time.monotonic() + QUIET

    def close(self) -> None:
        """End the thread and its process; returns at once."""
        self._closing.set()

    # ---- in this thread

    def run(self) -> None:
        try:
            self._begin()
            while not self._closing.is_set():
                self._look()
                self._ask()
                self._listen()
                if self._has_news:
                    self._has_news = False
                    self._say()
        except Exception as error:  # of ours: nobody else would tell of it
            text = f"lab.live has ended by an error of its own: {error!r}"
            self._todo.clear()
            self._result = replace(self._result, failure=Failure("raised", text))
            self._say()
            raise
        finally:
            self._end_worker()

    def _look(self) -> None:
        """See whether the files or the settings have changed, and if so begin anew."""
        before = self._files.contents
        if self._files.look():
            modules = self._subject.modules
            if any(before.get(path) != self._files.contents.get(path) for path in modules):
                self._end_worker()  # another imports them
            self._begin()
        elif self._wanted != self._settings:
            self._begin()

    def _begin(self) -> None:
        """Begin with the version that the files hold now."""
        self._settings = self._wanted
        self._result = Result(self.history.version_of(self._files.contents), self._settings)
        self._todo = [step for step in STEPS if step != (ON_CPU if self._on_gpu else ON_GPU)]
        if self._step:
            self._outdated = True
            self._since, self._limit = time.monotonic(), PATIENCE
            if self._step not in RUNS_KERNELS:
                self._worker.interrupt()
        self._say()

    def _ask(self) -> None:
        """Ask for the next step, if it is time for it."""
        if self._step or not self._todo:
            return
        with self._lock:
            waited, self._waits = self._waits, self._must_wait()
            if not self._waits:
                if self._worker is None:
                    self._worker = WorkerProcess(self._subject)
                    self._todo = ["open", *(step for step in self._todo if step != "open")]
                self._step, self._outdated = self._todo.pop(0), False
        if self._waits:
            if not waited:
                self._say()
            return
        self._since, self._limit = time.monotonic(), float("inf")
        arguments: tuple = ()
        if self._step in RUNS_KERNELS:
            arguments, self._limit = (self._settings,), self._seconds
        if self._step in ("check", "predict"):
            arguments, self._limit = (self._settings, self._seconds), self._seconds + REPORTING
        self._worker.ask((self._step, arguments))
        self._say(DOING[self._step])

    def _must_wait(self) -> bool:
        """Whether the next step runs kernels, and a cell runs or has only just ended."""
        is_loud = self._cell_runs or time.monotonic() < self._quiet_from
        return is_loud and self._todo[0] in RUNS_KERNELS

    def _listen(self) -> None:
        """Wait for a message, or until it is time to look at the files again."""
        if self._worker is None or not self._step:
            time.sleep(PERIOD)
            return
        try:
            if self._worker.connection.poll(PERIOD):
                self._hear(self._worker.connection.recv())
            elif time.monotonic() - self._since > self._limit:
                self._give_up()
        except (EOFError, OSError):
            self._bury()

    def _hear(self, message: object) -> None:
        if isinstance(message, jitload.BuildEvent):
            if not self._outdated:
                stage = f", {message.stage}" if message.stage else ""
                self._say(f"{DOING[self._step]}{stage}, {message.seconds:.1f} s")
            return
        step, self._step = self._step, ""
        if isinstance(message, Failure) and message.ends_process:
            self._end_worker()
        if self._outdated:
            return
        if isinstance(message, Failure):
            self._fail(step, message)
        else:
            self._learn(message)
        self._say()

    def _learn(self, answer: object) -> None:
        match answer:
            case Opened():
                self._choices = answer.versions
                self._files.follow(answer.recipes)
                self._result = replace(self._result, opened=answer)
            case Measured():
                self._result = replace(self._result, measured=answer)
            case Checked():
                self._take(answer)
            case Predicted():
                self._result = replace(self._result, predicted=answer)
            case tuple():  # of Use
                self._result = replace(self._result, uses=answer)

    def _take(self, checked: Checked) -> None:
        """A call that ended outside of the checker is not endless, even if the check timed out."""
        if self._result.measured and "timeout" in {it.kind for it in checked.findings}:
            note = f"lab.check has not come to an end within {self._seconds:g} s."
            self._result = replace(self._result, notes=(note,))
        else:
            self._result = replace(self._result, checked=checked)
        if not checked.is_whole:
            self._todo.clear()  # there is no time to predict

    def _fail(self, step: str, failure: Failure) -> None:
        """After a build error there is nothing more to do; after an error of the call, the checker
        may find the reason."""
        if step in ("instrument", "check"):
            self._result = replace(self._result, notes=(f"lab.check: {failure.text}",))
            self._todo.clear()
        if step == "predict":
            self._result = replace(self._result, notes=(f"lab.predict: {failure.text}",))
        if step == "launched":
            note = f"PyTorch's profiler does not say what the kernels take: {failure.text}"
            self._result = replace(self._result, notes=(note,))
        if not self._result.failure and step in ("open", "measure"):
            self._result = replace(self._result, failure=failure)
        if step == "measure":
            self._todo = [it for it in self._todo if it != ON_CPU]
        if step == "open":
            self._todo.clear()

    def _give_up(self) -> None:
        """Ends a step that has taken too long: a kernel hangs, or the step is no longer wanted."""
        step, outdated = self._step, self._outdated
        self._end_worker()
        if outdated:
            return
        text = f"The call did not return within {self._seconds:g} s, and its process was ended."
        self._go_on_after(step, Failure("hung", text))

    def _bury(self) -> None:
        """Handles the end of the process: a kernel crashed it, or it was ended for a cell."""
        step, outdated = self._step, self._outdated
        with self._lock:
            for_a_cell = self._for_a_cell
        how = self._worker.end()
        self._end_worker()
        if for_a_cell and not outdated:
            self._todo[:0] = ["open", step]
            self._say()
        elif not outdated:
            self._go_on_after(step, Failure("crashed", f"The process of the kernel {how}"))

    def _go_on_after(self, step: str, failure: Failure) -> None:
        self._fail(step, failure)
        if step == "measure":
            self._todo = list(WITHOUT_TIMES)
        self._say()

    def _end_worker(self) -> None:
        with self._lock:
            worker, self._worker, self._step = self._worker, None, ""
            self._for_a_cell = False
        if worker:
            worker.close()

    def _say(self, doing: str = "") -> None:
        """Report the state. Errors of `tell` are its own affair."""
        self.history.note(self._result)
        ghosts = tuple(self.history.ghosts(self._result))
        doing = doing or self._doing()
        state = State(doing, self._result, ghosts, self.history.pinned, self._choices)
        with contextlib.suppress(Exception):
            self._tell(state)

    def _doing(self) -> str:
        """The current or next step, in words; "" if none is left."""
        if self._step and not self._outdated:
            return DOING[self._step]
        if not self._todo:
            return ""
        waits = self._todo[0] in RUNS_KERNELS and self._cell_runs
        return "waiting for the cell to end" if waits else DOING[self._todo[0]]
