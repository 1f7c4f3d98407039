"""Lists the files of the project's parts: those that `new` copies, and those in a wheel.

setup.py also imports this module, with nothing installed.
"""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from playground_folder.place import OF_LIBRARY

LIBRARY = OF_LIBRARY
# Files that the user may edit, and the pages that the chapters link to.
FOLDER = (".clang-format", "docs", "kernels", "notebooks", "reference.py")

# Left out: what tools and readers leave behind, and the programs that publish the pages.
_LEFT_OUT = (
    "__pycache__",
    ".ipynb_checkpoints",
    ".pytest_cache",
    ".ruff_cache",
    "*.pyc",
    "scratch",
    "docs/programs",
    "notebooks/mine/[!R]*",  # the reader's own; README.md says so
    "notebooks/exercises/SHA256SUMS",
    "notebooks/listings.py",
    "notebooks/publish.py",
    "notebooks/simulated.py",
    "notebooks/site",
)


def files(parts: tuple[str, ...], root: Path) -> Iterator[str]:
    """The files of these parts of a project, relative to it, in order."""
    for part in parts:
        yield from sorted(_within(root, root / part))


def _within(root: Path, path: Path) -> Iterator[str]:
    name = path.relative_to(root).as_posix()
    if any(fnmatch(name, pattern) or fnmatch(path.name, pattern) for pattern in _LEFT_OUT):
        return
    if path.is_dir():
        for each in path.iterdir():
            yield from _within(root, each)
    elif path.is_file():
        yield name
