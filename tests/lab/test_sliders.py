"""lab.explore: one figure, and sliders that draw it anew."""

import matplotlib.pyplot
import nbformat
import pytest
from matplotlib.figure import Figure

import lab

pytest.importorskip("ipywidgets", reason="ipywidgets is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")

PYPLOT = """
import matplotlib.pyplot as plt
import lab

def draw(width):
    figure, axes = plt.subplots()
    axes.plot([0, width])
    return figure

lab.explore(draw, width=[1, 2])
"""
OURS = """
import lab
reads = lambda width: {"reads": lambda thread, step: [thread * width + step]}
lab.explore(lambda width: lab.plot_access(reads(width), threads=4, steps=2), width=[1, 2])
"""


@pytest.mark.parametrize("source", [PYPLOT, OURS], ids=["pyplot", "lab"])
@pytest.mark.usefixtures("forked_kernels")
def test_a_figure_is_shown_once(source, tmp_path):
    cells = [nbformat.v4.new_code_cell(source), nbformat.v4.new_code_cell("x = 5")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": tmp_path}}
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=resources).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.outputs]
    assert len([data for data in shown if "image/png" in data]) == 1


@pytest.fixture
def shown(monkeypatch):
    """What is displayed, and a slider that one can move."""
    import IPython.display

    items = []

    class Handle:
        def update(self, figure):
            items[0] = figure

    def display(item, display_id=False):
        items.append(item)
        return Handle()

    monkeypatch.setattr(IPython.display, "display", display)
    return items


def test_a_slider_draws_anew_and_leaves_no_figure_open(shown):
    def draw(width, height):
        figure, axes = matplotlib.pyplot.subplots()
        axes.set_title(f"{width} x {height}")
        return figure

    lab.explore(draw, width=range(3, 6), height=(1, 2))
    figure, box = shown
    assert isinstance(figure, Figure)
    assert figure.axes[0].get_title() == "3 x 1"
    box.children[0].value = 5
    assert shown[0].axes[0].get_title() == "5 x 1"
    assert not matplotlib.pyplot.get_fignums()


@pytest.mark.parametrize(
    ("draw", "choices", "error", "says"),
    [
        (lambda width: None, {"width": [1]}, TypeError, "draw: returned a NoneType; wanted is the"),
        (lambda: None, {}, TypeError, "explore wants the values of an argument"),
        (lambda width: None, {"width": []}, ValueError, "width: .* is no list of values"),
        (lambda width: None, {"width": 3}, ValueError, "width: 3 is no list of values"),
        (lambda width: None, {"width": "12"}, ValueError, "width: '12' is no list of values"),
    ],
)
def test_wrong_arguments(draw, choices, error, says, shown):
    with pytest.raises(error, match=says):
        lab.explore(draw, **choices)
