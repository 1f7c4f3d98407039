"""The panel of `lab.live`: controls above, the picture, and what is to say below."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import ipywidgets as widgets

import jitload
from lab.measure import arguments
from lab.watcher import page
from lab.watcher.follower import State
from lab.watcher.picture import picture
from lab.watcher.settings import Settings, shapes_for, told

if TYPE_CHECKING:
    from lab.watcher.live import Live

BEST = "the best"  # in the control; a Dropdown shows nothing for None


class Panel:
    """Widgets that the follower's thread writes to, and that call its methods.

    A second view of the panel, and one that a page opened anew makes, show the same widgets.
    """

    def __init__(self, live: Live, settings: Settings | None) -> None:
        self._live, self._settings = live, settings
        self._status, self._picture, self._details = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self._back = widgets.Dropdown(options=[], layout=widgets.Layout(width="22em"))
        self._pin = widgets.Button(description="Pin", tooltip="keep this version in the picture")
        self._go = widgets.Button(
            description="Go back to", tooltip="write that version's files", disabled=True
        )
        self._other = widgets.Button(layout=widgets.Layout(display="none", width="auto"))
        self._other.on_click(lambda _: setattr(self._version, "value", self._other.tooltip))
        self._close = widgets.Button(description="Close")
        self._pin.on_click(lambda _: live.pin())
        self._close.on_click(lambda _: live.close())
        self._go.on_click(self._go_back)
        actions = widgets.HBox([self._pin, self._go, self._back, self._close])
        controls = [widgets.HBox(self._controls())] if settings else []
        controls += [self._other] if settings else []
        parts = [*controls, self._status, self._picture, self._details, actions]
        self._box = widgets.VBox(parts)

    def display(self) -> None:
        from IPython.display import display

        display(self._box)

    def show(self, state: State) -> None:
        """Show how things stand. Called by the follower's thread."""
        result = state.result
        self._status.value = page.status(self._live.name, state)
        self._picture.value = picture(result, state.ghosts, state.pinned)
        self._details.value = page.details(result)
        self._pin.description = "Unpin" if state.pinned == result.version else "Pin"
        self._offer_versions(state)
        edited = state.untouched_by
        if edited:
            self._other.description, self._other.tooltip = f"Measure {edited[0]}", edited[0]
        self._other.layout.display = "" if edited else "none"

    def say_closed(self) -> None:
        self._status.value += "<div>Closed: call lab.live again to follow on.</div>"
        for button in (self._pin, self._close):
            button.disabled = True

    def _offer_versions(self, state: State) -> None:
        """What there is to go back to, and the versions of the op, once they are known."""
        earlier = [
            (f"{it.number}  {it.when:%H:%M:%S}  {it.changes}", it.number)
            for it in reversed(self._live.history.versions)
            if it != state.result.version
        ]
        if earlier != list(self._back.options):
            numbers = [number for _, number in earlier]
            kept = self._back.value if self._back.value in numbers else None
            with self._back.hold_sync():  # a choice comes to the page with what it is out of
                self._back.options = earlier
                self._back.value = kept or next(iter(numbers), None)
            self._go.disabled = not earlier
        wanted = [(name, name) for name in (BEST, *state.choices)]
        if self._settings and state.choices and wanted != list(self._version.options):
            self._version.unobserve(self._choose, names="value")
            with self._version.hold_sync():
                self._version.options = wanted
                self._version.value = self._settings.version or BEST
            self._version.observe(self._choose, names="value")

    def _controls(self) -> list[widgets.Widget]:
        """Shape, type, direction, version and, where the op has several, options."""
        op, settings = arguments.an_op(self._live.name), self._settings
        shapes = [settings.shape, *shapes_for(op, jitload.default_target())]
        options = [settings.options, *(it for it in op.options if it != settings.options)]
        self._shape = _dropdown(
            "shape", [("{} x {}".format(*shape), shape) for shape in dict.fromkeys(shapes)]
        )
        self._dtype = _dropdown("type", [(name, name) for name in arguments.DTYPES])
        self._dtype.value = settings.dtype
        self._direction = _dropdown("direction", [("forward", False), ("backward", True)])
        self._direction.value = settings.backward
        self._version = _dropdown("version", [(BEST, BEST)])
        self._options = _dropdown("options", [(told(it) or "none", it) for it in options])
        controls = [self._shape, self._dtype, self._direction, self._version]
        controls += [self._options] * (len(options) > 1)
        for control in controls:
            control.observe(self._choose, names="value")
        return controls

    def _choose(self, _: object) -> None:
        self._settings = replace(
            self._settings,
            shape=self._shape.value,
            dtype=self._dtype.value,
            backward=self._direction.value,
            version=None if self._version.value == BEST else self._version.value,
            options=self._options.value,
        )
        self._live.choose(self._settings)

    def _go_back(self, _: object) -> None:
        if self._back.value is None:
            return
        try:
            self._live.go_back(self._back.value)
        except OSError as error:
            self._details.value = page.problem(str(error))


def _dropdown(name: str, options: list[tuple[str, object]]) -> widgets.Dropdown:
    """As narrow as its name and its texts; the first option is chosen."""
    return widgets.Dropdown(
        options=options,
        description=name,
        layout=widgets.Layout(width="auto"),
        style={"description_width": "auto"},
    )
