"""The book as a static site with navigation and search: python notebooks/book.py [FOLDER]

This is `make chapters`. It shows the outputs that are committed, a GPU's; a chapter that has none
yet is run here first. Sphinx writes the pages, as conf.py says, into html/ unless a FOLDER is
given; it needs no network, nor do the pages.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from notebooks import publish
from notebooks.publish import NOTEBOOKS, OUTPUTS, ROOT

INDEX = NOTEBOOKS / "index.md"
OTHERS = [NOTEBOOKS / "troubleshooting.md", NOTEBOOKS / "when_not.md"]
MARK = ".buildinfo"  # Sphinx leaves it in a site
COPIED = ("docs", "kernels", "notebooks")  # what the pages link to


def build(folder: Path) -> None:
    """Write the site into `folder`, in place of an earlier one; exits if Sphinx warns."""
    with tempfile.TemporaryDirectory() as temporary:
        source, pages = Path(temporary, "source"), Path(temporary, "html")
        write_sources(source)
        sphinx = Sphinx(
            source,
            confdir=NOTEBOOKS,
            outdir=pages,  # beside which myst-nb leaves a folder of its own
            doctreedir=source / ".doctrees",
            buildername="html",
            status=None,
            parallel=1,
        )
        sphinx.build()
        if sphinx._warncount:
            sys.exit(f"book: Sphinx warned {sphinx._warncount} times")
        if (folder / MARK).is_file():  # else pages that are gone would stay
            shutil.rmtree(folder)
        shutil.copytree(pages, folder, dirs_exist_ok=True)
    print(f"open {folder / 'index.html'}")


def write_sources(source: Path) -> None:
    """What Sphinx reads: the pages at the places that their links expect, and the front page."""
    unwanted = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "scratch")
    for name in COPIED:
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    pages = [f"notebooks/{path.stem}" for path in publish.chapters()]
    for path in publish.chapters():
        nbformat.write(with_outputs(path), source / "notebooks" / path.name)
    front = INDEX.read_text().replace("](", "](notebooks/")
    notes = [f"docs/{path.stem}" for path in sorted((ROOT / "docs").glob("*.md"))]
    others = [f"notebooks/{path.stem}" for path in OTHERS]
    parts = [
        front,
        *contents("Chapters", pages),
        *contents("To look up", others),
        *contents("Notes on the kernels", notes),
    ]
    (source / "index.md").write_text("\n".join(parts))


def contents(caption: str, pages: list[str]) -> list[str]:
    """The lines of a table of contents in the sidebar."""
    return ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]


def with_outputs(path: Path) -> nbformat.NotebookNode:
    """A chapter with its committed outputs, or with those of this machine if it has none."""
    notebook = nbformat.read(path, as_version=4)
    machine = notebook.metadata.get(OUTPUTS, {}).get("machine")
    if machine is None:
        print(f"{path.name}: no committed outputs, running it here", flush=True)
        publish.execute(notebook, path.parent)
        notebook, machine = publish.tidy(notebook), "the machine that wrote this page"
    note = f"*Outputs of {machine}.* The notebook is [{path.name}]({path.name})."
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(note))
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
