"""The line of progress: a terminal's, a notebook's, and none elsewhere."""

import io
import sys

import pytest

from lab.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def measure(fail=False):
    with Progress(2) as progress:
        progress.step("square, naive")
        progress.step("square, vector")
        if fail:
            raise KeyboardInterrupt


@pytest.mark.parametrize("fail", [False, True])
def test_a_terminal_shows_one_line_and_loses_it(fail, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    if fail:
        with pytest.raises(KeyboardInterrupt):
            measure(fail)
    else:
        measure()
    erase = "\r\x1b[K"
    shown = f"{erase}[1/2] square, naive{erase}[2/2] square, vector{erase}"
    assert terminal.getvalue() == shown


def test_a_file_gets_nothing(capsys):
    measure()
    assert capsys.readouterr() == ("", "")


def test_a_notebook_shows_one_display_and_empties_it():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    source = """
from lab.progress import Progress
with Progress(2) as progress:
    progress.step("square, naive")
    progress.step("square, vector")
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    messages = []

    class Client(nbclient.NotebookClient):
        def process_message(self, message, *arguments):
            if "data" in message["content"]:
                messages.append(message["content"]["data"])
            return super().process_message(message, *arguments)

    Client(notebook).execute()
    shown = [data.get("text/plain") for data in messages]
    assert shown[1:3] == ["[1/2] square, naive", "[2/2] square, vector"]
    (output,) = notebook.cells[0].outputs
    assert not any(output.data.values())
