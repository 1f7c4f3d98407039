"""What `lab.live` returns: the follower, and the panel that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.watcher import text
from lab.watcher.follower import Follower, State
from lab.watcher.history import History
from lab.watcher.result import Result
from lab.watcher.settings import Settings
from lab.watcher.subject import Subject

if TYPE_CHECKING:
    from lab.watcher.panel import Panel

_followed: dict[object, Live] = {}  # the newest for each key of a subject


class Live:
    """A kernel that is followed, from now until `close`.

    A notebook shows its panel; in a terminal str() says how things stand.
    """

    def __init__(self, subject: Subject, settings: Settings | None, seconds: float) -> None:
        self.name, self._subject = subject.name, subject
        history = self._history_of(_followed.get(subject.key))
        self._state: State | None = None
        self._panel: Panel | None = None
        self._follower = Follower(subject, settings, self._show, seconds, history)
        self._events = _events()
        if self._events:
            self._follower.begin_cell()  # the one that called us
            self._events.register("pre_run_cell", self._follower.begin_cell)
            self._events.register("post_run_cell", self._follower.end_cell)
        self._settings, self._is_closed = settings, False
        self._follower.start()
        _followed[subject.key] = self

    @property
    def history(self) -> History:
        """The versions since the first call of `lab.live` for it, and what was found of each."""
        return self._follower.history

    @property
    def result(self) -> Result | None:
        """What is known of the version that the files hold."""
        return self._state and self._state.result

    def choose(self, settings: Settings) -> None:
        """Measure on something else from now on."""
        self._follower.choose(settings)

    def pin(self) -> None:
        """Keep the present version beside all that follow; once more lets go of it."""
        self._follower.pin()

    def go_back(self, version: int) -> list[str]:
        """Have the files hold what they held in a version, and return the names of those changed.

        What they hold now stays in the history, whether it was built or not.

        Raises LookupError if there is no such version.
        """
        return self._follower.go_back(version)

    def close(self) -> None:
        """Follow no more."""
        self._is_closed = True
        if self._events:
            self._events.unregister("pre_run_cell", self._follower.begin_cell)
            self._events.unregister("post_run_cell", self._follower.end_cell)
            self._events = None
        self._follower.close()
        if self._panel:
            self._panel.say_closed()

    def _show(self, state: State) -> None:
        self._state = state
        if self._panel and not self._is_closed:
            self._panel.show(state)

    def _history_of(self, earlier: Live | None) -> History:
        """Take over from whoever has followed it until now. Only results of the same call go with
        the versions, for others cannot be compared.
        """
        if earlier is None:
            return History()
        earlier.close()
        if earlier._subject != self._subject:
            earlier.history.results.clear()
        return earlier.history

    def _ipython_display_(self) -> None:
        if self._panel is None:
            from lab.watcher.panel import Panel

            self._panel = Panel(self, self._settings)
            if self._state:
                self._panel.show(self._state)
        self._panel.display()

    def __repr__(self) -> str:
        if not self.result:
            return f"{self.name}: nothing is known yet"
        doing = f" ({self._state.doing})" if self._state.doing else ""
        version = self.result.version.number
        return f"{self.name}, version {version}{doing}: {text.summary(self.result)}"


def _events() -> Any:
    """IPython's, which say when cells begin and end; None outside of IPython."""
    try:
        from IPython import get_ipython
    except ModuleNotFoundError:
        return None
    shell = get_ipython()
    return shell.events if shell else None
