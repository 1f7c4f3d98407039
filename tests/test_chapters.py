"""Every chapter runs from top to bottom."""

import re
import time

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

import jitload
from notebooks import publish

SECONDS = 90  # of a chapter on two cores without a GPU
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


@pytest.mark.parametrize("path", publish.chapters(), ids=lambda path: path.stem)
def test_runs(path, tmp_path, published):
    number = path.stem.split("_")[0]
    published(path, *publish.EXERCISES.glob(f"{number}_*"))
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
        if cell.cell_type == "code" and publish.asks(cell):
            assert publish.is_unsolved(cell), cell.source
    if jitload.default_target() == "cpu":
        assert seconds < SECONDS, f"{path.name} took {seconds:.0f} s"
