"""A reader's session in a real browser: run a chapter, see its plot, edit a .cu, run a cell."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from browsers import browser, needs_browser

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import Locator, Page, expect

from jitloader.cache import Cache

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "notebooks/00_start.ipynb"
SECONDS = 1000  # Playwright counts in milliseconds
expect.set_options(timeout=180 * SECONDS)

pytestmark = [
    pytest.mark.browser,
    needs_browser,
    pytest.mark.skipif(not find_spec("jupyterlab"), reason="jupyterlab is not installed"),
]


@pytest.fixture
def project(tmp_path, published) -> Path:
    """A copy of the project in which a test may edit."""
    published(ROOT / CHAPTER, *(ROOT / "notebooks/exercises").glob("00_*"))
    copy = tmp_path / "project"
    ignore = shutil.ignore_patterns(".*", "__pycache__", "html", "*.egg-info", "tests", "mine")
    shutil.copytree(ROOT, copy, ignore=ignore)
    return copy


def wait_for(port: int, server: subprocess.Popen, log: Path) -> None:
    """Return once the server answers at `port`."""
    deadline = time.monotonic() + 180
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    pytest.fail(f"JupyterLab does not answer:\n{log.read_text()}")


@pytest.fixture
def address(project, tmp_path) -> Iterator[str]:
    """JupyterLab on the copy, with nobody's settings and a port and a token of its own.

    What it builds, kernels that hang among it, goes to a cache that nobody else has.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    settings = tmp_path / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--log-level=WARN"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1"),
        *(f"--IdentityProvider.token={token}", "--LabApp.expose_app_in_browser=True"),
    ]
    caches = (tmp_path / "cache", *Cache.here().folders)
    environment = {
        **os.environ,
        "JITLOAD_CACHE": os.pathsep.join(map(str, caches)),
        "PYTHONPATH": str(project),
        "JUPYTER_PATH": str(project / "lab/share"),
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
    }
    with (tmp_path / "jupyterlab.log").open("w") as log:
        server = subprocess.Popen(command, cwd=project, env=environment, stdout=log, stderr=log)
        try:
            wait_for(port, server, tmp_path / "jupyterlab.log")
            yield f"http://127.0.0.1:{port}/lab/tree/{CHAPTER}?token={token}"
        finally:
            server.terminate()
            server.wait(timeout=30)


@pytest.fixture
def page() -> Iterator[Page]:
    with browser() as started:
        yield started.new_page(viewport={"width": 1400, "height": 1000})


class Notebook:
    """The notebook that is open in JupyterLab, driven as its menus drive it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        # a cell that is run before the kernel is idle for the first time may be lost
        page.wait_for_function(
            """() => {
                const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
                return context?.isReady && context.session?.kernel?.status === "idle";
            }""",
            timeout=120 * SECONDS,
        )

    def _panel(self, expression: str, argument: object = None) -> object:
        script = f"async given => {{ const panel = jupyterapp.shell.currentWidget; {expression} }}"
        return self.page.evaluate(script, argument)

    def run_all(self) -> None:
        """Run all cells and wait for the last; the command itself returns at the first error."""
        self._panel("await jupyterapp.commands.execute('notebook:run-all-cells')")
        self.page.wait_for_function(
            """() => [...jupyterapp.shell.currentWidget.content.model.cells].every(
                cell => cell.type !== "code" || cell.executionCount)""",
            timeout=180 * SECONDS,
        )

    def run(self) -> None:
        """Run the selected cell."""
        self._panel("await jupyterapp.commands.execute('notebook:run-cell')")

    def cells(self) -> list[nbformat.NotebookNode]:
        return nbformat.from_dict(self._panel("return panel.content.model.toJSON()")).cells

    def select(self, cell_id: str) -> Locator:
        """Select a cell and bring it into view."""
        index = [cell.id for cell in self.cells()].index(cell_id)
        self._panel(
            "panel.content.activeCellIndex = given; await panel.content.scrollToItem(given)", index
        )
        return self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")


@pytest.mark.slow
def test_edit_on_disk_is_live_in_the_next_cell(project, address, page, tmp_path):
    page.goto(address)
    notebook = Notebook(page)

    notebook.run_all()
    for cell in notebook.cells():
        if cell.cell_type == "code":
            assert cell.execution_count, f"did not run:\n{cell.source}"
            failed = [output for output in cell.outputs if output.output_type == "error"]
            announced = "raises-exception" in cell.metadata.get("tags", [])
            assert bool(failed) == announced, f"{cell.source}\n{failed}"

    plot = notebook.select("plot").locator(".jp-OutputArea-output img")
    expect(plot).to_be_visible()
    box = plot.bounding_box()
    assert box["width"] > 300, box
    assert box["height"] > 150, box
    page.screenshot(path=tmp_path / "plot.png")

    live = notebook.select("live").locator(".jp-OutputArea-output").last
    expect(live).to_contain_text("25.")
    kernel = project / "kernels/square.cu"
    source = kernel.read_text()
    assert source.count("return x * x;") == 1
    kernel.write_text(source.replace("return x * x;", "return x * x * x;"))
    notebook.run()
    expect(live).to_contain_text("125.")
    page.screenshot(path=tmp_path / "edited.png")


@pytest.mark.slow
def test_an_error_opens_its_cell(project, address, page, tmp_path):
    broken = "%%cu broken\n__global__ void k(float* x) {\n    x[0] = nothing;\n}"
    refused = (
        "%%cu refused\n__global__ void k(float* x) { x[0] = 1; }\n"
        'extern "C" void launch(float* x) { k<<<1, 4096>>>(x); }'
    )
    room = "\n" * 60  # so that a cell is out of sight
    sources = ["%load_ext lab", broken, refused, f"import torch{room}refused.launch(torch.ones(1))"]
    # Of a cell that announces no error the kernel gives up what has been sent right behind it.
    tags = {"tags": ["raises-exception"]}
    cells = [nbformat.v4.new_code_cell(source, metadata=tags) for source in sources]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), project / "cuda.ipynb")
    page.goto(address.replace(CHAPTER, "cuda.ipynb"))
    notebook = Notebook(page)
    for cell in cells:
        notebook.select(cell.id)
        notebook.run()
    for cell, name, place, index in (
        (cells[1], "broken", "3:12", 1),
        (cells[3], "refused", "3", 2),
    ):
        shown = notebook.select(cell.id)
        error = shown.locator(".jp-RenderedText[data-mime-type*=stderr]").last
        expect(error).to_contain_text(f"%%cu {name}:{place}")
        expect(error).not_to_contain_text("scratch")
        link = shown.get_by_role("link", name=f"Open the cell %%cu {name}")
        page.screenshot(path=tmp_path / f"{name}.error.png")
        link.click()
        page.wait_for_function(
            """index => {
                const { node } = jupyterapp.shell.currentWidget.content.widgets[index];
                const top = node.getBoundingClientRect().top;
                return top > 0 && top < window.innerHeight;
            }""",
            arg=index,
        )


def open_panel(project: Path, address: str, page: Page, call: str) -> tuple[Notebook, Locator]:
    """A notebook with a panel of `lab.live` that knows all of its first version, and the panel."""
    cells = [nbformat.v4.new_code_cell(source) for source in (f"import lab\n{call}", "6 * 7")]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    content = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.write(content, project / "live.ipynb")
    page.goto(address.replace(CHAPTER, "live.ipynb"))
    notebook = Notebook(page)
    notebook.select(cells[0].id)
    notebook.run()
    panel = page.locator(".jp-OutputArea").first
    expect(panel).to_contain_text("no findings")
    return notebook, panel


@pytest.mark.slow
def test_a_panel_follows_what_is_saved_and_goes_back(project, address, page, tmp_path):
    notebook, panel = open_panel(project, address, page, 'lab.live("square")')
    kernel = project / "kernels/square.cu"
    source = kernel.read_text()
    picture = panel.locator("svg text")
    # In multiples of the floor; the newest has its predicted time beside it.
    fetched = picture.filter(has_text=re.compile(r"^1\.00(, predicted .* µs)?$"))
    expect(fetched).to_have_count(1)

    def save(formula: str) -> None:
        kernel.write_text(source.replace("return x * x;", formula))

    save("return x * x * 2;")
    expect(panel).to_contain_text("version 2")
    expect(picture.filter(has_text="1.68e+07")).to_have_count(1)  # ULP: all 24 bits are wrong
    expect(fetched).to_have_count(2)
    save("return x * x")
    expect(panel).to_contain_text("square.cu:14:17: error: expected")
    page.screenshot(path=tmp_path / "broken.png")
    save("return x * x * 1;")
    expect(panel).to_contain_text("version 4")
    expect(panel).to_contain_text("no findings")
    expect(panel).not_to_contain_text("error: expected")
    expect(fetched).to_have_count(3)
    page.screenshot(path=tmp_path / "better.png")

    panel.locator("button", has_text="Pin").click()
    expect(picture.filter(has_text="★ 4")).to_have_count(1)
    panel.locator("select").last.select_option(index=2)
    panel.locator("button", has_text="Go back").click()
    expect(panel).to_contain_text("version 1")
    assert kernel.read_text() == source
    notebook._panel("await panel.context.save()")
    page.reload()
    Notebook(page)
    expect(page.locator(".jp-OutputArea").first).to_contain_text("version 1")
    page.screenshot(path=tmp_path / "opened_anew.png")


@pytest.mark.slow
def test_a_kernel_that_hangs_leaves_the_panel_and_cells_alive(project, address, page, tmp_path):
    call = 'lab.live("square", seconds=2)'
    notebook, panel = open_panel(project, address, page, call)
    kernel = project / "kernels/square.cu"
    source = kernel.read_text()
    kernel.write_text(source.replace("return x * x;", "while (x == x) {} return x * x;"))
    expect(panel).to_contain_text("measuring")
    notebook.select(notebook.cells()[1].id)
    notebook.run()
    expect(page.locator(".jp-OutputArea").last).to_contain_text("42")
    expect(panel).to_contain_text("did not return within 2 s")
    expect(panel).to_contain_text("square.cu:14: timeout")
    page.screenshot(path=tmp_path / "hung.png")
    kernel.write_text(source)
    expect(panel).to_contain_text("no findings")


@pytest.mark.slow
def test_cuda_has_the_colours_of_c_plus_plus_and_completion(project, address, page, tmp_path):
    sources = ["%load_ext lab", "%%cu scale\n// twice\n    __syncth", "x = 5"]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    content = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.write(content, project / "cuda.ipynb")
    page.goto(address.replace(CHAPTER, "cuda.ipynb"))
    notebook = Notebook(page)

    def languages() -> list[str]:
        return notebook._panel("return [...panel.content.model.cells].map(cell => cell.mimeType)")

    assert languages() == ["text/x-ipython", "text/x-cuda", "text/x-ipython"]
    comment = page.locator(".cm-line > span").filter(has_text=re.compile("^// twice$"))
    expect(comment).to_have_count(1)  # in Python's colours it would be operators and names

    notebook.run()
    notebook.select(cells[1].id).locator(".cm-line").last.click()
    page.keyboard.press("End")
    completer = page.locator(".jp-Completer")
    for _ in range(10):  # JupyterLab waits a second for a busy kernel, and then shows nothing
        page.keyboard.press("Tab")
        with suppress(AssertionError):
            expect(completer).to_contain_text("__syncthreads_count", timeout=5000)
            break
    expect(completer).to_contain_text("__syncthreads_count")
    page.screenshot(path=tmp_path / "completed.png")
    page.keyboard.press("Escape")

    source = "panel.content.model.cells.get(given[0]).sharedModel.setSource(given[1])"
    notebook._panel(source, [1, "x = 6"])
    notebook._panel(source, [2, "%%cu more"])
    assert languages() == ["text/x-ipython", "text/x-ipython", "text/x-cuda"]

    page.goto(address.replace(CHAPTER, "kernels/square.cu"))
    expect(
        page.locator(".cm-line > span").filter(has_text=re.compile("^template$"))
    ).not_to_have_count(0)
