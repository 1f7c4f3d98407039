"""Who of the simulator's parts includes whom: kernels' headers, the executor, the checker."""

import re
from functools import cache
from pathlib import Path

import simulator

FOLDER = Path(simulator.__file__).parent
HEADERS = sorted(path for room in ("executor", "checker") for path in (FOLDER / room).glob("*.h"))


@cache
def included(path: Path) -> list[Path]:
    """The project's files that a file includes."""
    names = re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
    return [(path.parent / name).resolve() for name in names]


_known: dict[Path, set[Path]] = {}


def reached(path: Path, way: tuple[Path, ...] = ()) -> set[Path]:
    """A file and all that it includes, directly or not."""
    assert path not in way, f"a circle: {' includes '.join(map(str, (*way, path)))}"
    if path not in _known:
        headers = (reached(header, (*way, path)) for header in included(path))
        _known[path] = {path}.union(*headers)
    return _known[path]


def rooms(path: Path) -> set[str]:
    return {file.relative_to(FOLDER).parts[0] for file in reached(path)}


def test_a_header_says_what_it_is_for_and_includes_one_way():
    for path in HEADERS:
        assert re.match(r"// [A-Z_a-z].{20,}", path.read_text()), path
        if path.parent.name == "executor":
            assert rooms(path) <= {"executor", "include"}, path
        whole = {"executor": "runtime.cpp", "checker": "checker.cpp"}[path.parent.name]
        assert path in reached(FOLDER / whole), path


def test_what_kernels_include_is_theirs_alone():
    for path in FOLDER.glob("include/**/*.h"):
        assert rooms(path) == {"include"}


def test_the_checker_knows_of_the_executor_what_it_announces():
    """Not how it does what it does; and which addresses its allocations have."""
    checkers = [path for path in HEADERS if path.parent.name == "checker"]
    known = {file for path in checkers for file in included(path)}
    executors = {file.name for file in known if file.parent.name == "executor"}
    assert executors == {"arena.h", "bulk_moves.h", "libraries.h", "watcher.h"}
