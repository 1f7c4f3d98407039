"""The book as a static site with navigation and search: python notebooks/site/book.py [FOLDER]

This is `make chapters`. It shows the outputs that are committed, a GPU's; a chapter that has none
is run here first. Sphinx writes the pages, as conf.py says, into html/ unless a FOLDER is given; it
needs no network, nor do the pages.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient.exceptions import CellExecutionError

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from notebooks import publish
from notebooks.publish import INDEX, ROOT
from notebooks.site import api

MARK = ".buildinfo"  # Sphinx leaves it in a site
COPIED = ("docs", "kernels", "notebooks")  # what the pages link to


def build(folder: Path) -> None:
    """Write the site into `folder`, in place of an earlier one; exits if Sphinx warns.

    What it warns of in a chapter that a reader has edited is told and stops nothing.
    """
    with tempfile.TemporaryDirectory() as temporary:
        source, pages = Path(temporary, "source"), Path(temporary, "html")
        write_sources(source)
        # in a process of its own: conf.py imports the ops without their kernels
        command = [sys.executable, "-m", "sphinx", "--quiet", "--no-color"]
        folders = ["--conf-dir", Path(__file__).parent, "--doctree-dir", source / ".doctrees"]
        sphinx = subprocess.run(
            [*command, *folders, source, pages], stderr=subprocess.PIPE, text=True
        )
        sys.stderr.write(sphinx.stderr)
        if sphinx.returncode:
            sys.exit("book: Sphinx failed")
        if warned := warnings_of_the_book(sphinx.stderr):
            sys.exit(f"book: Sphinx warned {warned} times")
        if (folder / MARK).is_file():  # else pages that are gone would stay
            shutil.rmtree(folder)
        shutil.copytree(pages, folder, dirs_exist_ok=True)
    print(f"open {folder / 'index.html'}")


def warnings_of_the_book(said: str) -> int:
    """How many warnings Sphinx wrote, without those in chapters that somebody has edited."""
    places = [f"/notebooks/{path.name}:" for path in publish.chapters() if publish.edited(path)]
    lines = [line for line in said.splitlines() if re.search("(WARNING|ERROR|CRITICAL): ", line)]
    return sum(not any(place in line for place in places) for line in lines)


def write_sources(source: Path) -> None:
    """What Sphinx reads: the pages at the places that their links expect, and the front page."""
    notes = sorted((ROOT / "docs").rglob("*.md"))
    shown = {*publish.chapters(), *publish.pages(), *notes}

    def unwanted(folder: str, names: list[str]) -> list[str]:
        """The names in a folder that are no part of the site: other pages, a reader's notebooks."""
        return [
            name
            for name in names
            if name in ("__pycache__", ".ipynb_checkpoints", "scratch", "mine", "site")
            or (name.endswith((".ipynb", ".md")) and Path(folder, name) not in shown)
        ]

    for name in COPIED:
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    for path in publish.chapters():
        nbformat.write(with_outputs(path), source / "notebooks" / path.name)
    shutil.copy(ROOT / "reference.py", source)
    (source / "api").mkdir()
    for name, page in api.pages().items():
        (source / "api" / f"{name}.rst").write_text(page)
    parts = [
        INDEX.read_text().replace("](", "](notebooks/"),
        *contents("Chapters", places(publish.chapters())),
        *contents("To look up", places(publish.pages())),
        *contents("Reference", [f"api/{name}" for name in api.pages()]),
        *contents("Notes on the kernels", places(notes)),
    ]
    (source / "index.md").write_text("\n".join(parts))


def places(paths: list[Path]) -> list[str]:
    """Pages as Sphinx names them."""
    return [str(path.relative_to(ROOT).with_suffix("")) for path in paths]


def contents(caption: str, pages: list[str]) -> list[str]:
    """The lines of a table of contents in the sidebar."""
    return ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]


def with_outputs(path: Path) -> nbformat.NotebookNode:
    """A chapter with its committed outputs, or with those of this machine if it has none.

    What a reader has made of it is shown, too, and said to be no page of the book.
    """
    notebook = nbformat.read(path, as_version=4)
    note = ""  # its first cell says whose they are
    if not any(cell.get("outputs") for cell in notebook.cells):
        print(f"{path.name}: no outputs, running it here", flush=True)
        note = "Outputs of the machine that wrote this page."
        try:
            publish.execute(notebook, path.parent)
        except CellExecutionError as error:
            print(f"{path.name}: {error.ename}: {error.evalue}", file=sys.stderr)
            note = f"Run on the machine that wrote this page, as far as the {error.ename}."
    elif publish.edited(path):
        note = "Run or edited since it was published; the outputs are those that were saved last."
    notebook = publish.tidy(notebook)
    text = f"{note and f'*{note}* '}The notebook is [{path.name}]({path.name})."
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(text))
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "html", metavar="FOLDER")
    folder = parser.parse_args().folder.resolve()
    if folder.exists() and not (folder / MARK).is_file() and any(folder.iterdir()):
        parser.error(f"{folder} holds something else; wanted is a new folder, or an earlier site")
    build(folder)


if __name__ == "__main__":
    main()
