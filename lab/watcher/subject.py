"""What can be followed: an op of the project (`op_subject`), a call of the user's
(`call_subject`)."""

from pathlib import Path
from typing import Any, Protocol

from lab.watcher.result import Checked, Measured, Predicted, Use
from lab.watcher.settings import Settings


class Subject(Protocol):
    """Sent to the process that runs it, so it holds plain data; what it loads is kept there.

    Its methods from `load` on run in that process, and raise whatever goes wrong. `settings` are
    None for a call of the user's.
    """

    @property
    def name(self) -> str:
        """As it is shown."""

    @property
    def key(self) -> object:
        """Subjects of one key have one history."""

    @property
    def modules(self) -> list[Path]:
        """The Python files that count: where one changes, a new process imports them."""

    def recipes(self) -> list[Any]:
        """What decides its builds, before any is opened."""

    def load(self) -> list[Any]:
        """Load all kernels as their files are now, and return the recipes of their builds."""

    def versions(self) -> tuple[str, ...]:
        """The names of the versions to choose from."""

    def measure(self, settings: Settings | None) -> Measured:
        """Error and time."""

    def launched(self, settings: Settings | None) -> tuple[Use, ...]:
        """What the kernels take that run on a GPU."""

    def instrument(self) -> None:
        """Build for the checker; kernels that are left out are built when they are called."""

    def check(self, settings: Settings | None, seconds: float) -> Checked:
        """Findings and traffic. seconds: that the kernels may take."""

    def predict(self, settings: Settings | None, seconds: float) -> Predicted:
        """The time on a GPU that is not there. seconds: that the kernels may take here."""
