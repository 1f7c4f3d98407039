"""Every chapter runs from top to bottom, an unfinished exercise fails, and its solution passes."""

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


def with_solutions(notebook):
    """`notebook` with the solution folded up below each exercise as a code cell in its place."""
    for cell, below in zip(notebook.cells, notebook.cells[1:], strict=False):
        if "exercise" not in tags(cell):
            continue
        code = re.search(r"<details>.*```python\n(.*?)```.*</details>", below.source, re.DOTALL)
        assert code, f"no folded solution below this exercise:\n{cell.source}"
        below.update(nbformat.v4.new_code_cell(code[1], id=below.id))
    return notebook


@each_chapter
def test_runs(path, tmp_path):
    notebook = with_solutions(nbformat.read(path, as_version=4))
    begin = time.perf_counter()
    try:
        publish.execute(notebook, tmp_path, timeout=600)
    except CellExecutionError as error:
        pytest.fail(ANSI.sub("", str(error)), pytrace=False)
    seconds = time.perf_counter() - begin

    assert any("exercise" in tags(cell) for cell in notebook.cells)
    for cell in notebook.cells:
        raised = [output for output in cell.get("outputs", ()) if output.output_type == "error"]
        assert bool(raised) == ("raises-exception" in tags(cell)), f"did not raise:\n{cell.source}"
        if "exercise" in tags(cell):
            assert raised[0].ename == "AssertionError", raised[0]
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
    counts = [c.execution_count for c in notebook.cells if c.cell_type == "code"]
    assert counts in ([None] * len(counts), list(range(1, len(counts) + 1)))
