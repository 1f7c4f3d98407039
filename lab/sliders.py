"""A figure with sliders; where no widget runs (a web page, GitHub) it is the first figure alone."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure


def explore(draw: Callable[..., Figure], **choices: Sequence[object]) -> None:
    """Show `draw(**first choices)`, and below it a slider for each argument.

        lab.explore(lambda width: plot(width), width=[64, 256, 1024])

    choices: the values of each argument, the first one shown first.
    """
    from IPython.display import display
    from ipywidgets import HBox, SelectionSlider

    shown = display(draw(**{name: values[0] for name, values in choices.items()}), display_id=True)
    sliders = {
        name: SelectionSlider(options=list(values), description=name, continuous_update=False)
        for name, values in choices.items()
    }

    def redraw(_: object) -> None:
        shown.update(draw(**{name: slider.value for name, slider in sliders.items()}))

    for slider in sliders.values():
        slider.observe(redraw, names="value")
    display(HBox(list(sliders.values())))
