"""A new op from the scaffold passes the tests of all ops, and is formatted as they are."""

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

import jitload
from lab import scaffold

ROOT = jitload.KERNELS.parent
PARTS = ("kernels", "lab", "simulator", "tests", "toolchain")
FILES = ("jitload.py", "reference.py", "pyproject.toml", ".clang-format")
NAME = "squared_relu"  # longer than the model's, so that lines move


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project to which the op was added as CONTRIBUTING.md says."""
    folder = tmp_path_factory.mktemp("project")
    for part in PARTS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for file in FILES:
        shutil.copy(ROOT / file, folder / file)
    said = run(folder, "-m", "lab.scaffold", NAME).stdout
    assert [path.name for path in folder.glob(f"kernels/{NAME}*")]
    stub = said[said.index("@op") : said.index("It passes")]
    with (folder / "reference.py").open("a") as reference:
        reference.write(f"\n\n{stub.rstrip()}\n")
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """This Python in that copy of the project."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_a_new_op_passes_the_tests_of_all_ops(project):
    tests = [
        "tests/test_ops.py::test_error_is_about_pytorchs",
        "tests/test_ops_autograd.py",
        "tests/test_ops_errors.py",
        "tests/test_ops_transforms.py",
        "tests/test_reference.py",
    ]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", NAME]
    said = run(project, "-m", "pytest", *options, *tests).stdout
    assert int(said.split(" passed")[0].split()[-1]) > 100, said


def test_a_new_op_is_formatted_as_the_others(project):
    scripts = sysconfig.get_path("scripts")
    sources = [f"kernels/{NAME}.cu", f"kernels/{NAME}.cpp"]
    for tool, *options in (
        ["clang-format", "--dry-run", "-Werror", *sources],
        ["ruff", "format", "--check", f"kernels/{NAME}.py", "reference.py"],
        ["ruff", "check", f"kernels/{NAME}.py", "reference.py"],
    ):
        found = shutil.which(tool, path=scripts)
        if found is None:
            pytest.skip(f"{tool} is not installed")
        done = subprocess.run([found, *options], cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_op_in_a_folder_of_its_own(tmp_path, monkeypatch):
    paths = scaffold.scaffold("elsewhere", tmp_path)
    assert [path.name for path in paths] == ["elsewhere.cu", "elsewhere.cpp", "elsewhere.py"]
    assert not [path for path in paths if scaffold.MODEL in path.read_text()]
    monkeypatch.syspath_prepend(tmp_path)
    elsewhere = importlib.import_module("elsewhere").elsewhere

    x = torch.arange(5.0, device=jitload.device(), requires_grad=True)
    y = elsewhere(x)
    torch.testing.assert_close(y, x * x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 2 * x)


@pytest.mark.parametrize("name", ["Square", "2d", "squared-relu", "class", ""])
def test_a_name_that_is_none(name, tmp_path):
    with pytest.raises(ValueError, match="wanted is a lower-case identifier"):
        scaffold.scaffold(name, tmp_path)


def test_nothing_is_overwritten(tmp_path, capsys):
    with pytest.raises(ValueError, match="an op of that name already"):
        scaffold.scaffold("relu", tmp_path)
    mine = tmp_path / "mine.cpp"
    mine.write_text("// mine\n")
    assert scaffold.main(["mine", "--folder", str(tmp_path)]) == 1
    assert "has mine.cpp already" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["// mine\n"]
