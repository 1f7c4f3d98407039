"""Every chapter runs from top to bottom."""

import json
import re
import resource
import statistics
import time

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

import jitload
from notebooks import publish, simulated
from tests.helpers import forks

# Of processor time, for a chapter and the compilers that it starts; the clock would also count what
# runs beside it. The longest takes some 100, and more where others use the cores: see `slowness`.
SECONDS = 200
# For make test: kernels of a notebook, and products with its plots, in a few seconds each.
QUICK = ("00_start", "04_rounding")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def processor_seconds() -> float:
    """What the processes took that this one has started, and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + forks.processor_seconds()


def slowness() -> float:
    """How often as long as 18 ms, its time where SECONDS was set, the same work takes now; 1 at
    least. Another machine is slower, and processes beside it take of a core's units and caches."""

    def once(_: int) -> float:
        begin = time.process_time()
        sum(i * i for i in range(300_000))
        return time.process_time() - begin

    return max(1.0, statistics.median(map(once, range(9))) / 0.018)


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def chapters() -> list:
    """All; most are left to make test-all, the longest of them first."""
    long = ("12b_ship_it", "12_bind_it", "13_train")
    first = dict.fromkeys(long, (pytest.mark.slow, pytest.mark.longest))
    marks = dict.fromkeys(QUICK, ()) | first
    return [
        pytest.param(path, marks=marks.get(path.stem, pytest.mark.slow), id=path.stem)
        for path in publish.chapters()
    ]


@pytest.mark.parametrize("path", chapters())
@pytest.mark.usefixtures("forked_kernels")
def test_runs(path, tmp_path, published, gpu_alone):
    number = path.stem.split("_")[0]
    published(path, *publish.EXERCISES.glob(f"{number}_*"))
    notebook = nbformat.read(path, as_version=4)
    begin, before = processor_seconds(), slowness()
    try:
        publish.execute(notebook, tmp_path, timeout=600)
    except CellExecutionError as error:
        pytest.fail(ANSI.sub("", str(error)), pytrace=False)
    seconds = processor_seconds() - begin

    for cell in notebook.cells:
        raised = [output for output in cell.get("outputs", ()) if output.output_type == "error"]
        assert bool(raised) == ("raises-exception" in tags(cell)), f"did not raise:\n{cell.source}"
        # a trace shows the whole source, with errors that nothing has told
        shown = [] if simulated.is_simulated(cell) else cell.get("outputs", [])
        told = set(re.findall(r"\bcudaError[A-Z]\w+", json.dumps(shown)))
        prose = "".join(each.source for each in notebook.cells if each.cell_type == "markdown")
        assert all(name in prose for name in told), f"the text names another error than {told}"
        if cell.cell_type == "code" and publish.asks(cell):
            assert publish.is_unsolved(cell), cell.source
    if jitload.default_target() == "cpu":
        limit = SECONDS * max(before, slowness())
        assert seconds < limit, f"{path.name} took {seconds:.0f} s of processor time"
