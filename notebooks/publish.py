"""Run the chapters and keep their outputs: python notebooks/publish.py [CHAPTER ...]

The outputs that are committed are a GPU's, so publishing asks for one. It needs nbclient and
ipykernel, and no install of the project. Each chapter is written back tidy: no timestamps, no
counts, no widget state, no editor's metadata, no path of this machine.

Beside the outputs stands the digest of the code that made them; a test fails where the code is
another one by now. `--tidy` runs nothing and only tidies; this is the pre-commit hook. To read the
chapters as web pages: `make chapters` (notebooks/book.py).
"""

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
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
OUTPUTS = "outputs_of"  # in a notebook's metadata: {"code": the digest, "machine": a GPU's name}


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
    temporary = Path(tempfile.gettempdir())
    places = ((ROOT, "."), (sys.prefix, "python"), (Path.home(), "~"), (temporary, "tmp"))
    for folder, name in places:
        text = text.replace(f"{json.dumps(str(folder))[1:-1]}/", f"{name}/")
    text = re.sub(r"\btmp/(tmp|playground-)\w{8}/", "tmp/", text)  # another one in every run
    clean = nbformat.from_dict(json.loads(text))
    clean.metadata = nbformat.from_dict(METADATA)
    if OUTPUTS in notebook.metadata:
        clean.metadata[OUTPUTS] = notebook.metadata[OUTPUTS]
    for cell in clean.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output["metadata"] = {}
            if "execution_count" in output:
                output["execution_count"] = None
        if "outputs" in cell:
            cell.execution_count = None
            cell.outputs = [output for output in cell.outputs if is_seen(output)]
    return clean


def is_seen(output: nbformat.NotebookNode) -> bool:
    """Whether a page shows it: not a widget, which needs a kernel, nor a cleared progress line.

    Nor what a library warns of: that is news for whoever runs the chapter.
    """
    data = output.get("data", {})
    if "application/vnd.jupyter.widget-view+json" in data or data == {"text/plain": ""}:
        return False
    said = output.text if output.get("name") == "stderr" else ""
    return not re.match(r"\S*site-packages/\S+:\d+: \w*Warning: ", said)


def code_digest(notebook: nbformat.NotebookNode) -> str:
    """The digest of all that the outputs depend on in `notebook`: its code, in order."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def require_gpu() -> str:
    """The name of the GPU; exits where there is none."""
    sys.path.insert(0, str(ROOT))
    import torch

    import jitload

    if jitload.default_target() != "cuda":
        sys.exit(
            "publish: the committed outputs are a GPU's, and this machine's target is cpu "
            "(python -m jitload doctor says why). To run a chapter here: "
            "make chapters"
        )
    return torch.cuda.get_device_name()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", type=Path, default=chapters())
    parser.add_argument("--tidy", action="store_true", help="run nothing, only tidy the files")
    arguments = parser.parse_args()

    machine = None if arguments.tidy else require_gpu()
    for path in arguments.chapters:
        begin = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        if machine:
            execute(notebook, path.parent)
            notebook.metadata[OUTPUTS] = {"code": code_digest(notebook), "machine": machine}
            print(f"{path.name}: ran in {time.perf_counter() - begin:.1f} s", flush=True)
        nbformat.write(tidy(notebook), path)


if __name__ == "__main__":
    main()
