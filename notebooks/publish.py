"""Run the chapters and keep their outputs: python notebooks/publish.py [CHAPTER ...]

The outputs that are committed are a GPU's, so publishing asks for one. It needs nbclient and
ipykernel, and no install of the project. Each chapter is written back tidy: no timestamps, no
widget state, no editor's metadata, no path of this machine.

`--html FOLDER` runs the chapters on any machine and writes pages into FOLDER instead; this is
`make chapters`. `--tidy` runs nothing and only tidies; this is the pre-commit hook.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent
ROOT = NOTEBOOKS.parent
CODE_STYLE = "<style>.jp-OutputArea .highlight pre { font-family: monospace }</style>"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def chapters() -> list[Path]:
    """The chapters in reading order."""
    return sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))


def execute(notebook: nbformat.NotebookNode, folder: Path, *, timeout: float | None = None) -> None:
    """Run every cell of `notebook` from top to bottom in `folder`, on this interpreter.

    A cell may raise only where its tag `raises-exception` announces it; elsewhere nbclient's
    CellExecutionError shows the cell and its traceback. `timeout` is in seconds, for each cell.
    """
    # the project is importable without an install, and before any other copy of it
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env={**os.environ, "PYTHONPATH": path})


def tidy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy of `notebook` in which only what a reader wrote or sees is left."""
    text = json.dumps(notebook)
    for folder, name in ((ROOT, "."), (Path.home(), "~")):
        text = text.replace(f"{json.dumps(str(folder))[1:-1]}/", f"{name}/")
    clean = nbformat.from_dict(json.loads(text))
    clean.metadata = nbformat.from_dict(METADATA)
    for cell in clean.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output["metadata"] = {}
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
        if "outputs" in cell:
            # a progress line that has cleared itself leaves an empty output
            empty = {"text/plain": ""}
            cell.outputs = [output for output in cell.outputs if output.get("data") != empty]
    return clean


def write_page(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write `notebook`, with its outputs, as a web page."""
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter().from_notebook_node(notebook, {"metadata": {"name": path.stem}})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.replace("<head>", f"<head>{CODE_STYLE}", 1), encoding="utf-8")


def require_gpu() -> None:
    sys.path.insert(0, str(ROOT))
    import jitload

    if jitload.default_target() != "cuda":
        sys.exit(
            "publish: the committed outputs are a GPU's, and this machine's target is cpu "
            "(python -m jitload doctor says why). To run the chapters here: make chapters"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", type=Path, default=chapters())
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--html", type=Path, metavar="FOLDER", help="write pages into FOLDER instead")
    mode.add_argument("--tidy", action="store_true", help="run nothing, only tidy the files")
    arguments = parser.parse_args()

    if not (arguments.html or arguments.tidy):
        require_gpu()
    for path in arguments.chapters:
        begin = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        if not arguments.tidy:
            execute(notebook, path.parent)
            print(f"{path.name}: ran in {time.perf_counter() - begin:.1f} s", flush=True)
        if arguments.html:
            write_page(tidy(notebook), arguments.html / f"{path.stem}.html")
        else:
            nbformat.write(tidy(notebook), path)


if __name__ == "__main__":
    main()
