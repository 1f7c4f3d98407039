"""Shows builds in a notebook: one line, live during the build, that ends as its report."""

import html
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jitload
from lab.notebook.errors import log_of

GREEN, RED = "var(--jp-success-color1, #2e7d32)", "var(--jp-error-color1, #c62828)"
SIZE = "var(--jp-code-font-size, 13px)"


class Line:
    """One output that updates in place; in a terminal, a line printed."""

    def __init__(self) -> None:
        self._handle = None

    def show(self, text: str, rich: str | None = None) -> None:
        """Put `text` there, or in a notebook the HTML `rich`."""
        from IPython.display import display

        data = {"text/plain": text, "text/html": rich or html.escape(text)}
        if self._handle:
            self._handle.update(data, raw=True)
        else:
            self._handle = display(data, raw=True, display_id=True)

    def tell(self, name: str, text: str, rich: str | None = None) -> None:
        """Show a message on the kernel `name`: `text`, or the HTML `rich`."""
        self.show(f"{name}: {text}", f"<b>{html.escape(name)}</b>: {rich or html.escape(text)}")

    def show_error(self, error: Exception, after: str) -> None:
        """Put an error there, and below it the sentence `after`."""
        text = f"{type(error).__name__}: {error}\n{after}"
        look = f"margin: 0; border-left: 3px solid {RED}; padding-left: 0.6em; font-size: {SIZE}"
        look += "; word-break: normal; overflow-wrap: anywhere"
        log = log_of(error)
        shown = re.sub(r"\nfull log: .*", "", text) if log else text
        self.show(text, f'<pre style="{look}">{html.escape(shown)}</pre>{log}')


class LiveBuilds:
    """Listener of `jitload.listeners`: stage and seconds of every build, four times a second.

    A build that a cell starts has its own line. One that runs under `shown_in` writes to the line
    given there, and leaves the final report to the caller.
    """

    def __init__(self) -> None:
        self._given: Line | None = None
        self._own: dict[tuple[str, str], Line] = {}

    @contextmanager
    def shown_in(self, line: Line) -> Iterator[None]:
        self._given = line
        try:
            yield
        finally:
            self._given = None

    def __call__(self, event: jitload.BuildEvent) -> None:
        key = (event.name, event.target)
        line = self._given or self._own.setdefault(key, Line())
        if event.state == "building":
            stage = f", {event.stage}" if event.stage else ""
            line.tell(event.name, f"building for {event.target}{stage}, {event.seconds:.1f} s")
        elif not self._given:
            end = f"built for {event.target} in"
            notes = "".join(f"; {note}" for note in event.notes)
            if event.state == "failed":
                end, notes = f"build for {event.target} failed after", ""
            line.tell(event.name, f"{end} {event.seconds:.1f} s{notes}")
            self._own.pop(key, None)


def report(
    line: Line,
    make: Callable[[], jitload.Kernel],
    before: jitload.Build | None,
    note: Callable[[jitload.Kernel], str] = lambda kernel: "",
) -> jitload.Kernel:
    """Call `make`, which builds a kernel if necessary, and report the result on `line`.

    before: the build that ran until now, to count the lines added and removed since.
    note: text to add at the end.
    """
    started = time.perf_counter()
    kernel = make()
    seconds = time.perf_counter() - started
    if before and kernel.digest == before.digest:
        text = f"the build of {kernel.build.when:%H:%M:%S} for {kernel.target} runs again"
    elif kernel.seconds <= seconds:
        text = f"{'rebuilt' if before else 'built'} for {kernel.target} in {seconds:.1f} s"
        text += "".join(f"; {it}" for it in kernel.notes)
    else:
        text = (
            f"build of {kernel.build.when:%d %B, %H:%M:%S} for {kernel.target}"
            f" opened in {1e3 * seconds:.0f} ms"
        )
    changes, coloured = _changes(kernel, before)
    last = note(kernel)
    rich = f'<span style="white-space: pre-wrap">{html.escape(last)}</span>'
    line.tell(told_apart(kernel), f"{text}{changes}{last}", f"{text}{coloured}{rich}")
    return kernel


def told_apart(kernel: jitload.Kernel) -> str:
    """A kernel's name, and what distinguishes it from loaded kernels of the same name."""
    others = [it for it in jitload.loaded() if it.name == kernel.name and it is not kernel]
    if not others:
        return kernel.name
    if any(it.sources[0] != kernel.sources[0] for it in others):
        said = [jitload.label(kernel.sources[0])]
    else:
        said = []
    if any(it.sources == kernel.sources for it in others):
        said += [*map(str, kernel.recipe.flags), kernel.target]
    return f"{kernel.name} ({' '.join(said)})"


def _changes(kernel: jitload.Kernel, before: jitload.Build | None) -> tuple[str, str]:
    """Which files changed, and how many lines came and went: as text and as HTML."""
    if before is None or kernel.digest == before.digest:
        return "", ""
    old, new = before.inputs, kernel.build.inputs
    files = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    names = ", ".join(path.rpartition("/")[2] for path in files)
    try:
        diff = kernel.diff(before, kernel.build)
    except OSError:  # somebody emptied the cache
        return f"; {names}", f"; {html.escape(names)}"
    return (
        f"; {names} +{diff.added} −{diff.removed} lines",
        f'; {html.escape(names)} <span style="color: {GREEN}">+{diff.added}</span>'
        f' <span style="color: {RED}">−{diff.removed}</span> lines',
    )
