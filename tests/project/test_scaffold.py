"""A new op from the scaffold passes the tests of all ops, and is formatted as they are."""

import contextlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import jitload
from lab import scaffold

ROOT = jitload.KERNELS.parent
PARTS = ("kernels", "lab", "jitloader", "playground_folder", "simulator", "tests", "toolchain")
FAMILY = "kernels/elementwise"
FILES = ("jitload.py", "reference.py", "pyproject.toml", ".clang-format")
OPTIONS = ("-q", "-x", "-p", "no:cacheprovider")
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
    made = [*(f"{FAMILY}/{NAME}.{kind}" for kind in ("cu", "cpp", "py")), "reference.py"]
    assert said.split("\n\n")[0].split() == [str(folder / path) for path in made]
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """This Python in that copy of the project."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def passed(project: Path, names: str) -> int:
    """How many tests of all ops there are for some, all of which pass."""
    tests = [
        "tests/ops/test_ops.py::test_error_is_about_pytorchs",
        "tests/ops/test_ops_autograd.py",
        "tests/ops/test_ops_errors.py",
        "tests/ops/test_ops_transforms.py",
        "tests/ops/test_reference.py",
    ]
    said = run(project, "-m", "pytest", *OPTIONS, "-k", names, *tests).stdout
    return int(said.split(" passed")[0].split()[-1])


# ---- another formula, as the scaffold says to change it

FORMULAS = {
    "reference.py": [
        ('"""y = x * x"""', '"""y = x * Phi(x), where Phi is the normal distribution"""'),
        ("    return x * x\n", "    return torch.nn.functional.gelu(x)\n"),
    ],
    f"{FAMILY}/gelu.cu": [
        ("    return x * x;", "    return x * A(0.5) * (A(1) + erf(x * A(0.7071067811865476)));"),
        (
            "    return 2 * g * x;",
            "    const A share = A(0.5) * (A(1) + erf(x * A(0.7071067811865476)));\n"
            "    return g * (share + x * A(0.3989422804014327) * exp(A(-0.5) * x * x));",
        ),
    ],
}


@pytest.fixture(scope="module")
def gelu(project) -> Path:
    """The project with another op, gelu's formula in it."""
    run(project, "-m", "lab.scaffold", "gelu")
    for file, changes in FORMULAS.items():
        text = (project / file).read_text()
        for before, after in changes:
            head, found, tail = text.rpartition(before)
            assert found, before
            text = head + after + tail
        (project / file).write_text(text)
    return project


@pytest.mark.slow
def test_a_new_op_passes_the_tests_of_all_ops_and_so_does_another_formula(gelu):
    assert passed(gelu, f"{NAME} or gelu") > 150


def attempt(project: Path, *tests: str) -> str:
    """What tests say that must fail."""
    environment = os.environ | {"PYTHONPATH": str(project), "COLUMNS": "400"}
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-k", "gelu-vector", *tests]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def changed(path: Path, before: str, after: str) -> Iterator[None]:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    yield
    path.write_text(text)


@pytest.mark.slow
def test_a_second_derivative_is_refused_until_it_is_written_and_one_of_x_squared_is_found(gelu):
    code = """
        import torch
        from kernels.gelu import gelu
        x = torch.ones(3, requires_grad=True)
        (grad,) = torch.autograd.grad(gelu(x).sum(), x, create_graph=True)
        try:
            torch.autograd.grad(grad.sum(), x)
        except RuntimeError as error:
            print(error)
    """
    said = run(gelu, "-c", textwrap.dedent(code)).stdout
    assert said.startswith("gelu has no second derivative; where you need one, use its formula in")
    with changed(gelu / FAMILY / "gelu.py", 'no_second_derivative("gelu")', "2"):  # as of x * x
        said = attempt(gelu, "tests/ops/test_ops_autograd.py")
    assert f"_double_backward in {FAMILY}/gelu.py is not the derivative of the gradient" in said
    assert "tensor([" not in said
    right = "(2 - x * x) * (x * x / -2).exp() * 0.3989422804014327"
    with changed(gelu / FAMILY / "gelu.py", 'no_second_derivative("gelu")', right):
        run(
            gelu,
            "-m",
            "pytest",
            *OPTIONS,
            "-k",
            "gelu and second",
            "tests/ops/test_ops_autograd.py",
        )


@pytest.mark.slow
def test_a_wrong_special_value_and_a_wrong_number_show_a_few_elements(gelu):
    source, result = gelu / FAMILY / "gelu.cu", "    return x * A(0.5) *"
    with changed(source, result, f"    if (x < A(-9)) return A(0);\n{result}"):
        said = attempt(gelu, "tests/ops/test_ops.py::test_special_values_among_others")
    assert "y: 2 of 72 elements are wrong, among them" in said
    assert "y[2, 0] is 0, wanted nan, where x is -inf" in said
    assert "tensor([" not in said
    assert len(said.splitlines()) < 50
    with changed(source, result, f"    if (x > A(1)) return x;\n{result}"):
        said = attempt(gelu, "tests/ops/test_ops.py::test_error_is_about_pytorchs")
    assert re.search(r"y is wrong by .*\n.* y: \d+ of \d+ elements are wrong, among them", said)
    assert re.search(r"y\[\d+, \d+\] is [\d.]+, wanted [\d.]+, where x is [\d.]+\n", said)
    assert "tensor([" not in said


@pytest.mark.slow
def test_a_gradient_that_was_forgotten_is_told_of(gelu):
    source = gelu / FAMILY / "gelu.cu"
    text = source.read_text()
    (gradient,) = [line for line in text.splitlines() if line.startswith("    return g * (share")]
    with changed(source, gradient, "    return 2 * g * x;"):
        said = attempt(gelu, "tests/ops/test_ops_autograd.py")
    assert "The gradient in kernels/elementwise/gelu.cu is not that of the formula there" in said
    assert "tensor([" not in said


def test_a_model_that_changed_is_not_copied_with_what_is_true_of_it_alone():
    text = (jitload.KERNELS / f"{scaffold.MODEL}.py").read_text()
    assert "x = backward(grad_dx, grad" not in scaffold.of_any_formula(text, ".py")
    with pytest.raises(RuntimeError, match=r"square\.py has 0 of .*wanted is one"):
        scaffold.of_any_formula(text.replace('"backward",\n', '"twice",\n'), ".py")
    text = (jitload.KERNELS / f"{scaffold.MODEL}.cu").read_text()
    with pytest.raises(RuntimeError, match=r"square\.cu has 0 of .*wanted is one"):
        scaffold.of_any_formula(text.replace("arithmetic is free", "arithmetic is not free"), ".cu")


def test_a_new_op_says_what_its_author_has_to_know(project):
    """What may be written, and what need not be true any longer."""
    source = " ".join((project / f"{FAMILY}/{NAME}.cu").read_text().replace("\n//", "").split())
    assert "free beside it for a formula of few instructions. Check that, or change" in source
    assert "A(0.5), not 0.5. exp, erf, sqrt and the like work for both alike." in source
    formulas = (project / f"{FAMILY}/{NAME}.py").read_text()
    _, _, second = formulas.partition("def _double_backward")
    for word in ("f''(x)", "import torch", "drop the import", "docstring"):
        assert word in second


@pytest.mark.slow
def test_functions_of_mathematics_are_those_of_float_and_double_alike(gelu):
    """As the scaffold says: in float as good as float, in double as good as double."""
    code = """
        import torch
        from kernels.gelu import gelu, kernel
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = torch.linspace(-3, 3, 1000, dtype=dtype, device=kernel.target)
            y = torch.nn.functional.gelu(x.double())
            print(((gelu(x).double() - y).abs().max() / torch.finfo(dtype).eps).item())
    """
    errors = run(gelu, "-c", textwrap.dedent(code)).stdout.split()
    assert [float(error) < 4 for error in errors] == [True] * 3


def test_a_new_op_is_formatted_as_the_others(project):
    scripts = sysconfig.get_path("scripts")
    sources = [f"{FAMILY}/{NAME}.cu", f"{FAMILY}/{NAME}.cpp"]
    for tool, *options in (
        ["clang-format", "--dry-run", "-Werror", *sources],
        ["ruff", "format", "--check", f"{FAMILY}/{NAME}.py", "reference.py"],
        ["ruff", "check", f"{FAMILY}/{NAME}.py", "reference.py"],
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


@pytest.mark.slow
def test_a_new_op_goes_into_the_folder_of_its_family(project):
    """Into one that is named, or is new; not among the headers, nor deeper."""
    for folder, name in (("norms", "family_named"), ("poolings", "family_new")):
        said = run(project, "-m", "lab.scaffold", name, "--folder", f"kernels/{folder}").stdout
        assert said.startswith(str(project / f"kernels/{folder}/{name}.cu"))
        assert f"kernels/{folder}/{name}.cu: the functions {name} and" in said
        code = f"from kernels.{name} import kernel, {name}; print({name}.__name__, kernel.sources)"
        assert f"kernels/{folder}/{name}.cpp" in run(project, "-c", code).stdout
    for folder in ("include", "norms/deeper", "no identifier"):
        said = refused(project, "other", "--folder", f"kernels/{folder}")
        assert f"kernels/{folder}; wanted is a family's, as" in said
    assert "there is an op of that name already" in refused(project, "quantize")


def refused(project: Path, *arguments: str) -> str:
    """What the scaffold says where it makes nothing."""
    command = [sys.executable, "-m", "lab.scaffold", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


def test_nothing_is_overwritten(tmp_path, capsys):
    with pytest.raises(ValueError, match="an op of that name already"):
        scaffold.scaffold("relu", tmp_path)
    mine = tmp_path / "mine.cpp"
    mine.write_text("// mine\n")
    assert scaffold.main(["mine", "--folder", str(tmp_path)]) == 1
    assert "has mine.cpp already" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["// mine\n"]
