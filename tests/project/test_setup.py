"""Set-up: one list of dependencies, one set of pins, and a Makefile that says what is missing."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kernel_playground import jupyter
from notebooks import publish

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
MAKE = shutil.which("make")

# Used where they are found: triton comes with torch's CUDA build, gdb has one of its own, and the
# others are rivals.
OPTIONAL = {"triton", "gdb", "liger_kernel", "quack", "flash_attn_interface", "fa3_fwd_interface"}

needs_make = pytest.mark.skipif(MAKE is None, reason="make is not on the PATH")


def by_name(requirements) -> dict[str, Requirement]:
    parsed = [Requirement(text) for text in requirements]
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return by_name(line for line in lines if line and not line.startswith("#"))


def listed() -> dict[str, Requirement]:
    return by_name(sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"]))


# ---------------------------------------------------------------------------- what is installed


def test_every_dependency_is_pinned_and_every_pin_is_needed():
    assert pins().keys() == listed().keys()
    assert str(pins()["torch"]) == "torch==2.13.0"


def test_pins_are_versions_that_pyproject_allows():
    for name, pin in pins().items():
        (specifier,) = pin.specifier
        assert specifier.operator == "==", pin
        version = specifier.version.removesuffix(".*")
        assert listed()[name].specifier.contains(version), f"{pin}, but {listed()[name]}"


def test_conda_installs_the_same_list_and_pins():
    text = (ROOT / "environment.yml").read_text()
    packages = re.findall(
        r"^  - ([^:\s]+)(?:\s+#.*)?$", text.split("dependencies:")[1], re.MULTILINE
    )
    by_pip = re.findall(r"^      - (.+)$", text, re.MULTILINE)
    assert by_pip == ["-c constraints.txt", "-e .[test]"]
    # the rest is what pip cannot give: the interpreter, the compilers, nvcc
    names = [re.split("[=<>]", package)[0] for package in packages]
    assert names == [
        *("python", "pip", "make", "cxx-compiler"),
        *("cuda-version", "cuda-nvcc", "cuda-cudart-dev"),
    ]
    versions = dict(package.split("=") for package in packages if "=" in package)
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(versions["python"])
    assert str(pins()["cuda-toolkit"].specifier) == f"=={versions['cuda-version']}.*"


def sources(*endings: str) -> list[str]:
    """The project's files with these endings; what a reader has added or edited is the reader's."""
    known = publish.tracked(".")  # by git, which a downloaded archive is without
    return sorted(
        str(path)
        for path in known or filter(is_of_the_project, ROOT.rglob("*.*"))
        if path.suffix in endings and not publish.edited(path)
    )


def is_of_the_project(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    if parts[0] == "html" or any(part[0] == "." or part in ("scratch", "mine") for part in parts):
        return False
    return path.suffix != ".ipynb" or path in publish.chapters()


def imported(path: Path) -> set[str]:
    """The top-level modules that a Python file or a notebook's cells import."""
    texts = [path.read_text()]
    if path.suffix == ".ipynb":
        cells = json.loads(texts[0])["cells"]
        code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        texts = list(map(TransformerManager().transform_cell, code))  # % and %% become calls
    names = set()
    for node in (node for text in texts for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module.split(".")[0])
    return names


def test_what_is_imported_is_listed():
    files = list(map(Path, sources(".py", ".ipynb")))
    assert files
    ours = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    ours |= {path.stem for path in (ROOT / "tests/helpers").glob("*.py")}  # on pytest's path
    ours.add("PACKAGE")  # the one that lab/ship/templates are written into
    here = packages_distributions()
    known = listed().keys() | by_name(PYPROJECT["build-system"]["requires"]).keys()
    for path in files:
        beside = {other.stem for other in path.parent.glob("*.py")}
        for name in imported(path) - ours - beside - OPTIONAL - set(sys.stdlib_module_names):
            # any package may bring a folder of that name too
            distributions = {canonicalize_name(found) for found in (name, *here.get(name, ()))}
            assert distributions & known, f"{path} imports {name}"


# ---------------------------------------------------------------------------- style


@pytest.mark.parametrize(
    ("program", "arguments", "endings"),
    [
        ("ruff", ["check"], (".py", ".ipynb")),
        ("ruff", ["format", "--check"], (".py", ".ipynb")),
        ("clang-format", ["--dry-run", "-Werror"], (".cu", ".cuh", ".cpp", ".h")),
    ],
    ids=["ruff check", "ruff format", "clang-format"],
)
def test_style(program, arguments, endings):
    """By the pinned tools: other releases of them format a little differently."""
    path = Path(sys.executable).with_name(program)
    if not path.exists():
        pytest.skip(f"{program} is not installed beside this Python")
    command = [path, *arguments, *sources(*endings)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not result.returncode, (result.stdout + result.stderr)[-3000:]


# ---------------------------------------------------------------------------- make

PIP = "-m pip install --no-compile --constraint constraints.txt"
INSTALL = f"{PIP} --editable"
# The simulator's runtime compiles beside the second of pip's runs.
SET_UP = sorted([f"{PIP} torch ninja", "-m jitload build --environment", f"{INSTALL} ."])
PYTHON_3_11 = "exit 0"
PYTHON_3_10 = "case $2 in *version_info*) exit 1;; esac"
PYTHON_WITHOUT_PIP = "case $2 in *ensurepip*) exit 1;; esac"
# makes a .venv whose python writes down how it was called
PYTHON_VENV = r"""[ "$2" != venv ] || { mkdir -p $3/bin
printf '#!/bin/sh\necho "$@" >>calls\n' >$3/bin/python && chmod +x $3/bin/python; }"""


class Checkout:
    """The files that set-up reads, and a PATH that holds nothing but the programs given."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder / "project", folder / "bin"
        self.folder.mkdir()
        self.bin.mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.folder)
        for name in ("sh", "mkdir", "touch", "chmod", "rm", "find", "id", "uname", "sed", "head"):
            (self.bin / name).symlink_to(shutil.which(name))

    def program(self, name: str, script: str = "exit 0") -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [MAKE, *arguments],
            cwd=self.folder,
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[str]:
        """How the python of .venv was called so far."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path)


@needs_make
@pytest.mark.parametrize(
    ("programs", "missing"),
    [
        ({}, "Python 3.11 or later (looked for python3)"),
        ({"python3": PYTHON_3_10}, "Python 3.11 or later (looked for python3)"),
        ({"python3": PYTHON_WITHOUT_PIP}, "python3's module ensurepip"),
        ({"python3": PYTHON_3_11}, "a C++ compiler (looked for c++)"),
    ],
    ids=["no python", "old python", "no ensurepip", "no compiler"],
)
@pytest.mark.parametrize("target", ["lab", "test", "chapters"])
def test_one_line_says_what_is_missing_and_how_to_get_it(checkout, programs, missing, target):
    for name, script in programs.items():
        checkout.program(name, script)
    result = checkout.make(target)
    assert result.returncode != 0
    line, *rest = result.stderr.splitlines()
    assert line.startswith(f"make: {missing} is missing. Get it with: apt install ")
    assert "(Debian)" in line
    assert "(conda)" in line
    assert "(macOS)" in line
    assert all(line.startswith("make: ***") for line in rest), result.stderr  # make's own verdict
    assert not (checkout.folder / ".venv").exists()


@needs_make
def test_python_and_compiler_can_be_chosen(checkout):
    result = checkout.make("test", "PYTHON=python3.99")
    assert "looked for python3.99" in result.stderr
    checkout.program("python3", PYTHON_3_11)
    result = checkout.make("test", CXX="no-such-c++")
    assert "looked for no-such-c++" in result.stderr


@needs_make
def test_set_up_runs_once(checkout):
    checkout.program("python3", PYTHON_VENV)
    checkout.program("c++")
    assert checkout.make("test").returncode == 0
    pytests = "-m pytest --numprocesses=logical --dist=worksteal -m "
    assert sorted(checkout.calls()[:3]) == SET_UP
    assert checkout.calls()[0] == f"{PIP} torch ninja"
    assert checkout.calls()[3:] == [f"{INSTALL} .[test]", f"{pytests}not slow"]
    assert checkout.make("test").returncode == 0
    assert checkout.calls()[5:] == [f"{pytests}not slow"]
    os.utime(checkout.folder / "constraints.txt")
    assert checkout.make("test").returncode == 0
    assert sorted(checkout.calls()[6:9]) == SET_UP
    assert checkout.calls()[9:] == [f"{INSTALL} .[test]", f"{pytests}not slow"]
    assert checkout.make("test", "test-all").returncode == 0
    assert checkout.calls()[11:] == [f"{pytests}not slow", f"{pytests}slow"]


@needs_make
@pytest.mark.parametrize(
    ("programs", "environment", "extras"),
    [
        (["nvidia-smi"], {}, "[nvcc]"),
        (["nvidia-smi", "nvcc"], {}, ""),
        (["nvidia-smi"], {"CUDA_HOME": "/usr/local/cuda"}, ""),
        ([], {}, ""),
    ],
)
def test_gpu_without_a_toolkit_gets_nvcc_from_wheels(checkout, programs, environment, extras):
    checkout.program("python3", PYTHON_VENV)
    for name in ("c++", *programs):
        checkout.program(name)
    assert checkout.make("lab", **environment).returncode == 0
    assert f"{INSTALL} .{extras}" in checkout.calls()


@needs_make
def test_lab_installs_what_readers_need_and_builds_no_kernel_before_the_page(checkout):
    checkout.program("python3", PYTHON_VENV)
    checkout.program("c++")
    assert checkout.make("lab").returncode == 0
    assert sorted(checkout.calls()[:3]) == SET_UP
    assert checkout.calls()[3:] == ["-m kernel_playground lab"]


@needs_make
@pytest.mark.parametrize(("fails", "status"), [("pip*editable", 2), ("jitload", 0)])
def test_set_up_fails_with_pip_and_not_with_the_build_beside_it(checkout, fails, status):
    refusing = PYTHON_VENV.replace(r"\necho", rf'\ncase "$*" in *{fails}*) exit 1;; esac\necho')
    checkout.program("python3", refusing)
    checkout.program("c++")
    assert checkout.make(".venv/.ready").returncode == status
    assert (checkout.folder / ".venv/.ready").exists() == (status == 0)


def test_lab_opens_the_first_chapter_of_the_index_with_the_labs_settings(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    assert jupyter.first_chapter(tmp_path) is None
    shutil.copy(publish.INDEX, tmp_path / "notebooks")
    for name in ("00_aa.ipynb", "00_mine.ipynb"):  # a reader's
        (tmp_path / "notebooks" / name).touch()
    words = jupyter.command(tmp_path, ["--port=1"])
    first = publish.chapters()[0].name
    assert f"--LabApp.default_url=/lab/tree/notebooks/{first}" in words
    assert words[-1] == "--port=1"
    monkeypatch.setenv("JUPYTER_PATH", "theirs")
    environment = jupyter.environment()
    ours, theirs = environment["JUPYTER_PATH"].split(os.pathsep)
    assert theirs == "theirs"
    assert list(Path(ours, "labextensions").glob("*/package.json"))
    (settings,) = environment["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert list(Path(settings).glob("labconfig/*.json"))
    # what JupyterLab makes of them: it starts no Node.js to see whether it should be built anew
    asks = "from jupyterlab_server.config import get_static_page_config as ask; "
    asks += "print(ask(level='all')['buildCheck'])"
    command = [sys.executable, "-c", asks]
    assert subprocess.check_output(command, env=environment, text=True) == "False\n"


@needs_make
def test_clean_removes_only_what_was_made(checkout):
    made = [".venv/bin/python", "html/00.html", "kernels/__pycache__/square.pyc", ".pytest_cache/x"]
    kept = ["kernels/mine.cu", "notebooks/mine.ipynb", "notes/html.txt"]
    for name in made + kept:
        path = checkout.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert checkout.make("clean").returncode == 0
    assert not [name for name in made if (checkout.folder / name).exists()]
    assert not (checkout.folder / "kernels/__pycache__").exists()
    assert all((checkout.folder / name).exists() for name in kept)


# ---------------------------------------------------------------------------- the pages


def commands(page: str) -> list[str]:
    """The command lines of a page's ```sh blocks, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_commands_of_the_pages_exist(page):
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[
        1
    ].split()
    found = commands(page)
    assert found
    for command in found:
        words = command.split()
        if words[0] == "make":
            assert set(words[1:]) <= set(targets), command
        for before, word in pairwise(words):
            if before == "-m":
                assert find_spec(word), command
            elif re.search(r"^[\w.]+/|\.\w+$", word) and "://" not in word:
                path = word.split("::")[0]
                assert path.startswith((".venv/", "html/")) or (ROOT / path).exists(), command


def test_ci_runs_the_command_of_the_readme_and_checks_the_book():
    assert "make test" in commands("README.md")
    *_, test, check = (ROOT / ".ci/run").read_text().splitlines()
    assert test == "make test test-all"
    assert check == ".venv/bin/python notebooks/publish.py --check"
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_map_of_the_readme_names_what_exists():
    text = (ROOT / "README.md").read_text()
    tree = re.search(r"## The map\n+```\w*\n(.*?)```", text, re.DOTALL)[1]
    names = [line.split()[0] for line in tree.splitlines() if line[:1].strip()]
    assert {"jitload.py", "reference.py", "kernels/", "simulator/", "lab/", "notebooks/"} <= set(
        names
    )
    assert not [name for name in names if not (ROOT / name).exists()]
