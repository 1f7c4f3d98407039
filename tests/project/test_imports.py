"""Who imports whom: rooms in one direction, and no circle, imports inside of functions counted."""

import ast
import re
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lab

ROOT = Path(__file__).resolve().parents[2]


def arrows() -> dict[str, set[str]]:
    """Each top-level room, and what it may import of the others: as CONTRIBUTING.md draws it."""
    picture = re.search(r"```mermaid\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)[1]
    drawn = dict(re.findall(r"^ +(\w+) --> (.*)$", picture, re.M))
    targets = {room: set(others.split(" & ")) for room, others in drawn.items()}
    return {room: targets.get(room, set()) for room in set(targets).union(*targets.values())}


ROOMS = arrows()
# The rooms of the lab: each may import those before it.
LAB = (
    "rivals",
    "style",
    "gpus",
    "checker",
    "tracer",
    "predictor",
    "measure",
    "figure",
    "custom_ops",
)
LAB += ("auditor", "judge", "profiler", "tuner", "watcher", "notebook", "course", "bench", "ship")


@cache
def modules() -> dict[str, Path]:
    """Every module of every room, by its name."""
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    paths += [ROOT / f"{room}.py" for room in ROOMS if (ROOT / f"{room}.py").is_file()]
    parts = {path: path.relative_to(ROOT).with_suffix("").parts for path in paths}
    return {".".join(part).removesuffix(".__init__"): path for path, part in parts.items()}


@cache
def imports(module: str) -> set[str]:
    """The modules of this project that a module imports, anywhere but under TYPE_CHECKING."""
    found = set()
    waiting: list[ast.AST] = [ast.parse(modules()[module].read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            names = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules() else node.module for name in names.values()}
    return found & modules().keys()


def room_of(module: str) -> str:
    return module.partition(".")[0]


def test_every_room_is_known():
    shown = {path.name for path in ROOT.glob("[!.]*") if any(path.glob("*.py"))}
    shown |= {path.stem for path in ROOT.glob("*.py")}
    assert shown - {"tests", "setup"} <= ROOMS.keys()


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_only_what_is_below_it(room):
    wrong = [
        f"{module} imports {other}"
        for module in modules()
        if room_of(module) == room
        for other in imports(module)
        if room_of(other) not in {room, *ROOMS[room]}
    ]
    assert not wrong


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_no_circle(room):
    own = [module for module in modules() if room_of(module) == room]
    try:
        list(TopologicalSorter({module: imports(module) for module in own}).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]), pytrace=False)


def test_rooms_of_the_lab_import_those_before_them():
    order = {room: place for place, room in enumerate(LAB)}
    place_of = {name: order.get(name.split(".")[1]) for name in modules() if name[:4] == "lab."}
    outside = {name for name, place in place_of.items() if place is None}
    assert outside == {"lab.scaffold", "lab.calibrate", "lab.__main__"}
    for module, place in place_of.items():
        for other in imports(module) & place_of.keys():
            assert place is None or order[other.split(".")[1]] <= place, f"{module}: {other}"
    described = [line.split()[0] for line in lab.__doc__.splitlines() if line[:4] == "    "]
    assert [word for word in described if word in order] == list(LAB)


def test_an_instrument_is_where_the_lab_says_and_no_room_has_its_name():
    for name in lab._HOMES:
        assert f"lab.{name}" not in modules(), "importing that would put it in the place of this"
        assert callable(getattr(lab, name))


# ---- what tests do without

COME_WITH_JUPYTER = {"jupyter_client", "jupyter_core"}  # so pyproject.toml does not list them


def test_a_test_is_skipped_only_for_want_of_a_package_that_pyproject_lists():
    """A module of this project, or a test's, that is not found is a mistake and no reason."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    packages = {re.match(r"[\w-]+", name)[0].replace("-", "_").lower() for name in listed}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
                package = node.args[0].value.partition(".")[0].lower()
                assert package in packages | COME_WITH_JUPYTER, f"{path}:{node.lineno}"
