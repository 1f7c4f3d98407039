"""Run the chapters in place and keep their outputs: python notebooks/publish.py [CHAPTER ...]

The outputs that are committed are a GPU's, so publishing asks for one. It needs nbclient and
ipykernel, and no install of the project. Each file is written back tidy: no timestamps, no widget
state, no editor's metadata, no path of this machine. `--tidy` does that alone; it is the
pre-commit hook.
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
            data = output.get("data", {})
            data.pop("application/vnd.jupyter.widget-view+json", None)
    return clean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", type=Path, default=chapters())
    parser.add_argument("--tidy", action="store_true", help="clean the files, run nothing")
    arguments = parser.parse_args()

    if not arguments.tidy:
        sys.path.insert(0, str(ROOT))
        import jitload

        if jitload.default_target() != "cuda":
            sys.exit(
                "publish: the committed outputs are a GPU's, and this machine's target is "
                "cpu (python -m jitload doctor says why). To read the chapters: make chapters"
            )
    for path in arguments.chapters:
        notebook = nbformat.read(path, as_version=4)
        begin = time.perf_counter()
        if not arguments.tidy:
            execute(notebook, path.parent)
        nbformat.write(tidy(notebook), path)
        print(f"{path.name}: {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
