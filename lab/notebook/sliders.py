"""A figure with sliders; without widgets (a web page, GitHub), only the first figure is shown."""

import sys
from collections.abc import Callable, Iterable

from matplotlib.figure import Figure


def explore(draw: Callable[..., Figure], **choices: Iterable[object]) -> None:
    """Show `draw(**first choices)`, and below it a slider for each argument.

        lab.explore(lambda width: plot(width), width=[64, 256, 1024])

    draw: returns a figure, of the lab's or of matplotlib.pyplot.
    choices: the values of each argument, the first one shown first.

    Raises TypeError or ValueError if there is nothing to choose from, or draw returns no figure.
    """
    from IPython.display import display
    from ipywidgets import HBox, SelectionSlider

    if not choices:
        raise TypeError("explore wants the values of an argument, as in width=[64, 256, 1024]")
    listed = {}
    for name, values in choices.items():
        listed[name] = (
            [] if isinstance(values, str) or not isinstance(values, Iterable) else [*values]
        )
        if not listed[name]:
            raise ValueError(f"{name}: {values!r} is no list of values, such as [64, 256, 1024]")

    def drawn(**chosen: object) -> Figure:
        figure = draw(**chosen)
        if not isinstance(figure, Figure):
            raise TypeError(f"draw: returned a {type(figure).__name__}; wanted is the figure")
        if pyplot := sys.modules.get("matplotlib.pyplot"):
            pyplot.close(figure)  # else a notebook would show it once more below the cell
        return figure

    shown = display(drawn(**{name: values[0] for name, values in listed.items()}), display_id=True)
    sliders = {
        name: SelectionSlider(options=values, description=name, continuous_update=False)
        for name, values in listed.items()
    }

    def redraw(_: object) -> None:
        shown.update(drawn(**{name: slider.value for name, slider in sliders.items()}))

    for slider in sliders.values():
        slider.observe(redraw, names="value")
    display(HBox(list(sliders.values())))
