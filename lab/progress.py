"""One line of progress while something measures, gone when it is done."""

import sys
from collections.abc import Callable
from types import TracebackType

Line = tuple[Callable[[str], object], Callable[[], object]]  # show a text; clear it


class Progress:
    """Counts steps up to `total` and shows them:

        with Progress(12) as progress:
            progress.step("layer_norm forward float32 4096 x 1024, eager")

    In a notebook the line is one display that updates in place. In a terminal it is a line of
    stderr that overwrites itself. Elsewhere (a file, a test) nothing is shown. It is cleared at
    the end, after an exception too.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0

    def step(self, text: str) -> None:
        """Say what is being done now; counts one step."""
        self.done += 1
        self._show(f"[{self.done}/{self.total}] {text}")

    def __enter__(self) -> "Progress":
        self._show, self._clear = _notebook_line() or _terminal_line() or _no_line()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._clear()


def _notebook_line() -> Line | None:
    """A display of the running notebook, or None outside one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    handle = display({"text/plain": ""}, raw=True, display_id=True)

    def show(text: str) -> None:
        handle.update({"text/plain": text}, raw=True)

    return show, lambda: show("")


def _terminal_line() -> Line | None:
    """The terminal behind stderr, or None where there is none."""
    stream = sys.stderr
    if not stream.isatty():
        return None

    def show(text: str) -> None:
        stream.write("\r\x1b[K" + text)  # to the line's start, and erase it
        stream.flush()

    return show, lambda: show("")


def _no_line() -> Line:
    return lambda text: None, lambda: None
