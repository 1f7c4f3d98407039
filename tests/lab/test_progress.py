"""The bar of progress: a terminal's, a notebook's, and none elsewhere or where work is quick."""

import io
import sys
from types import SimpleNamespace

import pytest

from lab.measure.progress import progress
from notebooks import publish


class Terminal(io.StringIO):
    def isatty(self):
        return True

    @property
    def line(self) -> str:
        """What a terminal shows on its one line in the end."""
        shown = ""
        for part in self.getvalue().split("\r"):
            shown = part + shown[len(part) :]
        return shown.rstrip()


@pytest.fixture
def clock(monkeypatch):
    """tqdm's, which stands still but for what is measured."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("tqdm.std.time", lambda: clock.now)
    return clock


def measure(clock, seconds, fail=False):
    with progress(2) as step:
        step("square, naive")
        clock.now += seconds
        step("square, vector")
        if fail:
            raise KeyboardInterrupt


@pytest.mark.parametrize("fail", [False, True])
def test_a_terminal_shows_one_line_and_loses_it(fail, monkeypatch, clock):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    if fail:
        with pytest.raises(KeyboardInterrupt):
            measure(clock, 0.6, fail)
    else:
        measure(clock, 0.6)
    assert "square, vector" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()
    assert "\n" not in terminal.getvalue()
    assert not terminal.line


def test_quick_work_shows_nothing(monkeypatch, clock):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    measure(clock, 0.4)
    assert not terminal.getvalue()


def test_a_file_gets_nothing(capsys, clock):
    measure(clock, 60)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.usefixtures("forked_kernels")
def test_a_notebook_shows_a_widget_and_loses_it(fail):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    source = f"""
import time
from lab.measure import progress
with progress.progress(3) as step:
    step("quick")
progress.SECONDS = 0.1
with progress.progress(3) as step:
    step("square, naive")
    time.sleep(0.2)
    step("square, vector")
    {"raise ValueError" if fail else "step('and the last')"}
"""
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["raises-exception"]})
    notebook = nbformat.v4.new_notebook(cells=[cell])
    closed = []

    class Client(nbclient.NotebookClient):
        def process_message(self, message, *arguments):
            if message["msg_type"] == "comm_close":
                closed.append(message["content"]["comm_id"])
            return super().process_message(message, *arguments)

    Client(notebook).execute()
    (shown,) = [it for it in cell.outputs if it.output_type == "display_data"]
    widget = shown.data["application/vnd.jupyter.widget-view+json"]
    assert widget["model_id"] in closed
    assert not publish.is_seen(shown)  # the page that is published has none of it
    rest = [it.output_type for it in cell.outputs if it is not shown]
    assert rest == (["error"] if fail else [])
