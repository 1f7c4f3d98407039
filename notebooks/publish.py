"""Run the chapters and keep their outputs: python notebooks/publish.py [CHAPTER ...]

The outputs that are committed are a GPU's, so publishing asks for one, unless all code cells of the
chapters have the tag `simulator` (simulated.py). It needs nbclient and ipykernel, what chapters
import (ipywidgets, pyelftools), and no install of the project. Each chapter is written back tidy:
no timestamps, no counts, no widget state, no editor's metadata, no path of this machine.

    python notebooks/publish.py --check      what is not fit to publish, a line each; CI runs this
    python notebooks/publish.py --tidy       runs nothing, only tidies; this is the pre-commit hook
    python notebooks/publish.py --listings   runs nothing; lists the sources as they are now
    python notebooks/publish.py --traces     runs what needs no GPU: cells with the tag `simulator`
    python notebooks/publish.py --drop CELL CHAPTER    deletes a cell that no other one needs

The chapters are those that notebooks/index.md links to, in its order, and nothing else lists them.
Other notebooks are a reader's: the tests and the site leave them alone.

Readers also run and edit the chapters and the exercises. Digests tell the published state: a
chapter's outputs have the digest of the code that made them, and exercises/SHA256SUMS has one of
each exercise. `make test` skips edited files, `pytest --edited` does not, and `--check` fails for
them.

To read the chapters as web pages: `make chapters` (notebooks/site/book.py).
"""

import argparse
import copy
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # no install is needed

from notebooks import simulated
from notebooks.simulated import OUTPUTS

NOTEBOOKS = Path(__file__).resolve().parent
ROOT = NOTEBOOKS.parent
INDEX = NOTEBOOKS / "index.md"
EXERCISES = NOTEBOOKS / "exercises"
SUMS = EXERCISES / "SHA256SUMS"  # in sha256sum's format
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
NOTE = (
    "*The outputs in this notebook were made on a GPU ({}). A cell that you run shows what your"
    " machine gives: without a GPU, what the simulator does.*"
)
NOTE_SIMULATED = (
    "*The outputs in this notebook were made by the simulator, without a GPU. No time in it was"
    " measured.*"
)


def chapters() -> list[Path]:
    """The chapters in reading order."""
    return linked("ipynb")


def pages() -> list[Path]:
    """The book's other pages, troubleshooting for example."""
    return linked("md")


def linked(ending: str) -> list[Path]:
    """The files beside the index with this ending that it links to, in its order."""
    names = re.findall(rf"\]\((\w+\.{ending})\)", INDEX.read_text())
    return [NOTEBOOKS / name for name in dict.fromkeys(names)]


def exercises() -> list[Path]:
    """The files that readers are asked to edit."""
    return sorted(path for path in EXERCISES.iterdir() if path.suffix in (".cu", ".cpp"))


# ---- what was published, and what somebody has edited since


def edited(path: Path) -> bool:
    """Whether somebody has edited a chapter or an exercise, or run a chapter and saved it.

    A new one without a noted digest does not count as edited. Other files never count.
    """
    if path in chapters():
        notebook = nbformat.read(path, as_version=4)
        noted = notebook.metadata.get(OUTPUTS, {}).get("code")
        known = notebook.metadata.get(OUTPUTS, {}).get(simulated.DIGESTS, {})
        return (
            noted not in (None, code_digest(notebook))
            or without_traces(notebook) != notebook
            or any(simulated.is_old(cell, known) for cell in notebook.cells)
        )
    if path.parent == EXERCISES:
        return sums().get(path.name) not in (None, sum_of(path))
    return False


def sums() -> dict[str, str]:
    """The noted digest of each exercise."""
    lines = SUMS.read_text().splitlines() if SUMS.exists() else []
    return {name: digest for digest, name in (line.split() for line in lines)}


def sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def note_exercises() -> None:
    """Write the digests of the exercises as they are now."""
    SUMS.write_text("".join(f"{sum_of(path)}  {path.name}\n" for path in exercises()))


# ---- is it fit to publish?


def problems(paths: list[Path]) -> list[str]:
    """The problems that keep these chapters, the exercises or the index from being published."""
    found = [f"{shown(path)}: {what}" for path in paths for what in problems_of(path)]
    noted = sums()
    for path in exercises():
        if noted.get(path.name) != sum_of(path):
            found.append(
                f"{shown(path)}: it is not the exercise that {SUMS.name} notes: `git restore` "
                "brings that one back, python notebooks/publish.py --tidy notes this one"
            )
    found += [f"{shown(SUMS)}: {name} is gone" for name in noted if not (EXERCISES / name).exists()]
    found += [
        f"{shown(path)}: notebooks/index.md does not link to it; a notebook of your own belongs "
        "into notebooks/mine/"
        for path in tracked("notebooks/*.ipynb")
        if path.parent == NOTEBOOKS and path not in chapters()
    ]
    return found


def problems_of(path: Path) -> list[str]:
    """The problems that keep one chapter from being published."""
    try:
        # before nbformat reads it, which gives a cell with another's id a new one
        ids = [cell.get("id") for cell in json.loads(path.read_text())["cells"]]
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except (OSError, KeyError, ValueError, nbformat.ValidationError) as error:
        return [f"{type(error).__name__}: {error}".partition("\n")[0]]
    found = []
    if tidy(notebook) != notebook:
        found.append(
            "it holds traces of an editor or of a machine: "
            f"python notebooks/publish.py --tidy {shown(path)}"
        )
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        found.append(f"several cells have the id {', '.join(twice)}")
    publishing = f"python notebooks/publish.py {shown(path)}"
    if not simulated.is_whole(notebook):
        publishing = f"on a machine with a GPU, {publishing}"
    made = notebook.metadata.get(OUTPUTS)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if not made:
        found.append(f"nobody has published it: {publishing}")
    elif made["code"] != code_digest(notebook):
        found.append(f"the code has changed since it was published: {publishing}")
    elif not any(cell.outputs for cell in code):
        found.append(f"the outputs are gone: {publishing}")
    else:
        found += [
            f"cell {cell.id} shows an exercise that is not unsolved: {publishing}"
            for cell in code
            if asks(cell) and not is_unsolved(cell)
        ]
        found += simulated.problems(notebook)
        found += problems_of_listings(notebook, path)
    return found


def problems_of_listings(notebook: nbformat.NotebookNode, path: Path) -> Iterator[str]:
    """The listings that differ from the sources, and those that cannot be compared."""
    from notebooks.listings import listings  # late: it imports PyTorch

    for each in listings(notebook):
        if each.is_old:
            yield (
                f"cell {each.cell} shows what {each.call} was: "
                f"python notebooks/publish.py --listings {shown(path)}"
            )
        elif each.trouble:
            yield f"cell {each.cell}: nobody can tell what {each.call} shows now: {each.trouble}"


def asks(cell: nbformat.NotebookNode) -> bool:
    """Whether the cell judges an exercise."""
    return re.search(r"^(check|judge)\(", cell.source, re.M) is not None


def is_unsolved(cell: nbformat.NotebookNode) -> bool:
    """Whether the verdict that the cell shows is `not yet`."""
    verdict = cell.outputs[-1].get("data", {}).get("text/plain", "") if cell.outputs else ""
    return "not yet" in verdict


def tracked(pattern: str) -> list[Path]:
    """The files that git tracks and whose paths match; none if this is no git checkout."""
    try:
        answer = subprocess.run(
            ["git", "ls-files", "-z", "--", pattern], cwd=ROOT, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    paths = (ROOT / os.fsdecode(name) for name in answer.stdout.split(b"\0") if name)
    return [path for path in paths if path.exists()]


def shown(path: Path) -> str:
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


# ---- running and tidying


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


def run(notebook: nbformat.NotebookNode, folder: Path, machine: str | None) -> None:
    """Run a chapter in `folder` to publish it. machine: the GPU's name.

    Cells with the tag `simulator` run alone, and only where their outputs are out of date.
    """
    noted = {"code": code_digest(notebook)}
    if not simulated.is_whole(notebook):
        noted[simulated.DIGESTS] = notebook.metadata.get(OUTPUTS, {}).get(simulated.DIGESTS, {})
        measured = [cell for cell in notebook.cells if not simulated.is_simulated(cell)]
        alone = nbformat.v4.new_notebook(cells=measured, metadata=METADATA)
        try:
            execute(alone, folder)
        finally:  # also after a cell has raised, for its traceback
            for cell, ran in zip(measured, alone.cells, strict=True):
                cell.update(ran)
        noted["machine"] = machine
    notebook.metadata[OUTPUTS] = noted
    with tempfile.TemporaryDirectory() as empty:
        simulated.renew(notebook, lambda alone: execute(alone, Path(empty)))


def tidy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy of `notebook` in which only what a reader wrote or sees is left."""
    text = json.dumps(notebook)
    temporary = Path(tempfile.gettempdir())
    places = ((ROOT, "."), (sys.prefix, "python"), (Path.home(), "~"), (temporary, "tmp"))
    for folder, name in places:
        text = text.replace(f"{json.dumps(str(folder))[1:-1]}/", f"{name}/")
    text = re.sub(r"\btmp/(tmp|playground-)\w{8}/", "tmp/", text)  # differs in every run
    text = re.sub(r"tmp/ipykernel_\d+/\d+\.py", "cell", text)  # how a warning names a cell
    return with_note(without_traces(nbformat.from_dict(json.loads(text))))


def with_note(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook, whose first cell ends with a note on the machine that made its outputs."""
    published = notebook.metadata.get(OUTPUTS)
    if published and notebook.cells and notebook.cells[0].cell_type == "markdown":
        first, machine = notebook.cells[0], published.get("machine")
        note = NOTE.format(machine) if machine else NOTE_SIMULATED
        rest = re.sub(r"\n\n\*The outputs in this notebook were made .*\*$", "", first.source)
        first.source = f"{rest}\n\n{note}"
    return notebook


def without_traces(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy of `notebook` without what Jupyter adds when it runs and saves one."""
    clean = copy.deepcopy(notebook)
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
    """Whether a page shows an output: no widget, which needs a kernel, nor cleared progress line.

    A library's warnings are left out, too: they concern whoever runs the chapter.
    """
    data = output.get("data", {})
    if "application/vnd.jupyter.widget-view+json" in data or data == {"text/plain": ""}:
        return False
    said = output.text if output.get("name") == "stderr" else ""
    return not re.match(r"\S*site-packages/\S+:\d+: \w*Warning: ", said)


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    text = nbformat.writes(notebook) + "\n"
    if text != path.read_text():  # else an editor in which it is open would ask to reload it
        path.write_text(text)


def renew_listings(path: Path) -> int:
    """Renew a chapter's listings of sources; returns how many have changed."""
    from notebooks.listings import listings

    notebook = nbformat.read(path, as_version=4)
    old = [each for each in listings(notebook) if each.is_old]
    for each in old:
        each.shown.clear()
        each.shown.update(each.data)
    write(notebook, path)
    return len(old)


def renew_traces(path: Path) -> int:
    """Run the chapter's outdated cells that need no GPU; returns how many there were."""
    notebook = nbformat.read(path, as_version=4)
    if simulated.is_whole(notebook):
        notebook.metadata[OUTPUTS] = notebook.metadata.get(OUTPUTS, {"code": code_digest(notebook)})
    if OUTPUTS not in notebook.metadata:
        sys.exit(f"publish: {path.name} has never been published; that comes first")
    with tempfile.TemporaryDirectory() as folder:
        count = simulated.renew(notebook, lambda alone: execute(alone, Path(folder)))
    write(tidy(notebook), path)
    return count


def drop(path: Path, cell: str) -> None:
    """Delete a cell of a published chapter, and note the digest of the code that is left."""
    notebook = nbformat.read(path, as_version=4)
    if notebook.metadata.get(OUTPUTS, {}).get("code") != code_digest(notebook):
        sys.exit(f"publish: {path.name} is not as it was published")
    try:
        simulated.drop(notebook, cell)
    except ValueError as error:
        sys.exit(f"publish: {error}")
    notebook.metadata[OUTPUTS]["code"] = code_digest(notebook)
    write(tidy(notebook), path)


def code_digest(notebook: nbformat.NotebookNode) -> str:
    """The digest of all that the outputs of a GPU depend on in `notebook`: its code, in order."""
    code = [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "code" and not simulated.is_simulated(cell)
    ]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def require_gpu() -> str:
    """The name of the GPU; exits if there is none."""
    import torch

    import jitload

    if jitload.default_target() != "cuda":
        sys.exit(
            "publish: the committed outputs are a GPU's, and this machine's target is cpu "
            "(python -m jitload doctor says why). To run a chapter here: "
            "make chapters"
        )
    return torch.cuda.get_device_name()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", type=Path, metavar="CHAPTER")
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--tidy", action="store_true", help="run nothing, only tidy the files")
    doing.add_argument(
        "--listings", action="store_true", help="run nothing, only list sources anew"
    )
    doing.add_argument(
        "--traces", action="store_true", help="run only what needs no GPU: tag simulator"
    )
    doing.add_argument("--drop", metavar="CELL", help="delete a cell that no other one needs")
    doing.add_argument("--check", action="store_true", help="say what is not fit to publish")
    arguments = parser.parse_args()
    paths = [path.resolve() for path in arguments.chapters] or chapters()

    if arguments.check:
        found = problems(paths)
        print(*found or [f"{len(paths)} chapters are fit to publish"], sep="\n")
        return bool(found)
    if arguments.listings:
        for path in paths:
            print(f"{path.name}: listings renewed: {renew_listings(path)}")
        return 0
    if arguments.traces:
        for path in paths:
            print(f"{path.name}: cells run: {renew_traces(path)}", flush=True)
        return 0
    if arguments.drop:
        if len(arguments.chapters) != 1:
            parser.error("--drop: wanted is one chapter")
        drop(paths[0], arguments.drop)
        return 0
    machine = None
    if not arguments.tidy and not all(
        simulated.is_whole(nbformat.read(path, as_version=4)) for path in paths
    ):
        machine = require_gpu()
    for path in paths:
        begin = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        if not arguments.tidy:
            run(notebook, path.parent, machine)
            print(f"{path.name}: ran in {time.perf_counter() - begin:.1f} s", flush=True)
        write(tidy(notebook), path)
    note_exercises()
    return 0


if __name__ == "__main__":
    sys.exit(main())
