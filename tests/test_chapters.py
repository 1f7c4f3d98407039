"""Every chapter runs from top to bottom, and its outputs are those of its code."""

import re
import time

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

import jitload
from notebooks import publish

SECONDS = 90  # of a chapter on two cores without a GPU
ANSI = re.compile(r"\x1b\[[0-9;]*m")

each_chapter = pytest.mark.parametrize("path", publish.chapters(), ids=lambda path: path.stem)


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


@each_chapter
def test_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    begin = time.perf_counter()
    try:
        publish.execute(notebook, tmp_path, timeout=600)
    except CellExecutionError as error:
        pytest.fail(ANSI.sub("", str(error)), pytrace=False)
    seconds = time.perf_counter() - begin

    for cell in notebook.cells:
        raised = [output for output in cell.get("outputs", ()) if output.output_type == "error"]
        assert bool(raised) == ("raises-exception" in tags(cell)), f"did not raise:\n{cell.source}"
        if cell.cell_type == "code" and re.search(r"^check\(", cell.source, re.M):
            assert "not yet" in cell.outputs[-1].data["text/plain"], cell.source
    if jitload.default_target() == "cpu":
        assert seconds < SECONDS, f"{path.name} took {seconds:.0f} s"


@each_chapter
def test_tidy(path):
    """No trace of an editor or a machine; `python notebooks/publish.py --tidy` removes them."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert publish.tidy(notebook) == notebook
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert not [cell for cell in notebook.cells if cell.get("execution_count")]


@each_chapter
def test_outputs_are_those_of_the_code(path):
    notebook = nbformat.read(path, as_version=4)
    made = notebook.metadata.get(publish.OUTPUTS)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    publishing = f"on a machine with a GPU, python notebooks/publish.py notebooks/{path.name}"
    assert made, f"nobody has published it: {publishing}"
    assert outputs, f"the outputs are gone: {publishing}"
    assert made["code"] == publish.code_digest(notebook), f"the code has changed: {publishing}"


def test_digest_is_that_of_the_code_alone():
    def digest(*cells):
        return publish.code_digest(nbformat.v4.new_notebook(cells=list(cells)))

    code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    assert digest(code("x = 1"), text("one")) == digest(text("two"), code("x = 1"))
    assert digest(code("x = 1")) != digest(code("x = 2"))
    assert digest(code("a"), code("b")) != digest(code("b"), code("a"))
