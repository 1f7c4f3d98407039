"""What pip installs, and what it means for imports: the wheel, the sdist, the editable install."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.version import Version

from kernel_playground.contents import FOLDER, LIBRARY, files
from kernel_playground.doctor import namesakes

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = (
    "kernel_playground",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
)

pytestmark = pytest.mark.skipif(
    find_spec("setuptools") is None or Version(version("setuptools")).major < 77,
    reason="setuptools 77 or later is not installed",
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """What a build reads; it leaves things beside it."""
    folder = tmp_path_factory.mktemp("clone")
    for name in files((*LIBRARY, *FOLDER, *BUILT_FROM), ROOT):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "notebooks/mine/own.py").write_text("# a reader's\n")
    (folder / "build/lib/kernel_playground/library").mkdir(parents=True)
    (folder / "build/lib/kernel_playground/library/gone.py").write_text("# of an earlier build\n")
    return folder


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr


@pytest.fixture(scope="module")
def wheel(clone) -> Path:
    to = clone / "wheels"
    pip("wheel", clone, "--no-deps", "--no-build-isolation", "--wheel-dir", to)
    (made,) = to.glob("*.whl")
    return made


class Environment:
    """A virtual environment with the wheel in it, and with the packages of this one."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.programs = folder / "bin"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        self.packages.joinpath("zz_others.pth").write_text(sysconfig.get_path("purelib"))
        quietly = ("--no-deps", "--no-index", "--no-compile")
        pip("--python", folder, "install", *quietly, "--force-reinstall", wheel)

    def run(self, *words: str | Path, cwd: Path, **more: str) -> str:
        """What one of its programs prints; it must not fail."""
        done = self.attempt(*words, cwd=cwd, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def attempt(self, program: str, *words: str | Path, cwd: Path, **more: str):
        known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [self.programs / program, *map(str, words)]
        return subprocess.run(
            command, cwd=cwd, env=known | more, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Iterator[Environment]:
    """Nobody writes to its packages; among them is another one that is called kernels."""
    made = Environment(tmp_path_factory.mktemp("environment"), wheel)
    other = made.packages / "kernels"
    other.mkdir()
    (other / "__init__.py").write_text("stranger = True\n")
    folders = [path for path in (made.packages, *made.packages.rglob("*")) if path.is_dir()]
    before = sorted(made.packages.rglob("*"))
    for folder in folders:
        folder.chmod(0o555)
    yield made
    for folder in folders:
        folder.chmod(0o755)
    after = [path for path in made.packages.rglob("*") if path.suffix != ".pyc"]  # root may write
    assert {*after} - {*before} <= {path.parent for path in made.packages.rglob("*.pyc")}


def test_a_wheel_leaves_the_names_of_other_packages_alone(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    page = {name.partition(".data/data/")[2] for name in names if ".data/" in name}
    for_jupyterlab = "share/jupyter/labextensions/kernel-playground"
    assert page == {f"{for_jupyterlab}/{name}" for name in ("package.json", "remoteEntry.js")}
    tops = {name.partition("/")[0] for name in names if ".data/" not in name}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        *("kernel_playground", "kernel_playground.pth")
    }
    for place, parts in (("library", LIBRARY), ("originals", FOLDER)):
        within = f"kernel_playground/{place}/"
        found = {name.removeprefix(within) for name in names if name.startswith(within)}
        assert found == {*files(parts, ROOT)}


def test_a_source_distribution_has_what_a_wheel_is_built_from(clone, tmp_path):
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", build, tmp_path]
    subprocess.run(command, cwd=clone, check=True, capture_output=True)
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {*files((*LIBRARY, *FOLDER, *BUILT_FROM), ROOT)} <= names
    assert "notebooks/mine/own.py" not in names


def test_an_editable_install_puts_the_clone_on_the_path(clone):
    there = clone / "site"
    pip("install", "--no-deps", "--no-build-isolation", "--editable", clone, "--target", there)
    (path,) = there.glob("*.pth")
    assert path.read_text().strip() == str(clone)


FOUND = """
    from importlib.util import find_spec
    from playground_folder import place
    names = ("kernels", "reference", "notebooks.rates", "lab")
    print(place.root(), *(find_spec(name).origin for name in names), sep="\\n")
"""
USED = """
    import os
    import torch, lab
    from kernels.square import square
    x = torch.arange(3.0)
    os.chdir("/")
    print(square(x).tolist(), lab.trial(square, x).result.tolist())
"""


@pytest.mark.slow
def test_each_folder_means_its_own_kernels_and_reference(environment, cache, tmp_path):
    """From its subfolders too, and whatever the working directory becomes."""
    one, other = tmp_path / "one of mine ü", tmp_path / "other"
    for folder in (one, other):
        said = environment.run("kernel-playground", "new", folder, cwd=tmp_path)
        assert f"kernel-playground lab {shlex.quote(str(folder))}" in said
    script = one / "notebooks/mine/own.py"
    script.write_text(textwrap.dedent(FOUND))
    for folder, words, cwd in (
        (one, ("-c", script.read_text()), one / "notebooks"),
        (one, (script,), other),
        (other, ("-c", script.read_text()), other),
    ):
        assert environment.run("python", *words, cwd=cwd).splitlines() == [
            *(f"{folder}", f"{folder}/kernels/__init__.py", f"{folder}/reference.py"),
            f"{folder}/notebooks/rates.py",
            f"{environment.packages}/kernel_playground/library/lab/__init__.py",
        ]
    source = one / "kernels/square.cu"
    source.write_text(source.read_text().replace("return x * x;", "return x * x * x;"))
    settings = {"JITLOAD_CACHE": str(cache), "JITLOAD_TARGET": "cpu"}
    code = textwrap.dedent(USED)
    said = environment.run("python", "-c", code, cwd=one / "notebooks", **settings)
    assert said == f"{[0.0, 1.0, 8.0]} {[0.0, 1.0, 8.0]}\n"


@pytest.mark.slow
def test_outside_of_all_folders_a_repository_has_its_own_names(environment, cache, tmp_path):
    (tmp_path / "reference.py").write_text("mine = True\n")
    (tmp_path / "twice.cu").write_text(
        '#include "types.h"\n__global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n'
    )
    code = """
        import kernels, reference
        print(kernels.stranger, reference.mine)
        import torch, jitload, lab
        kernel, x = jitload.load("twice.cu", target="cpu"), torch.ones(4)
        lab.time_calls({"mine": lambda: kernel.twice[1, 4](x)}, bytes=32)
        print(x[0] >= 2)
        try:
            lab.compare("square")
        except ImportError as error:
            print(error)
    """
    said = environment.run(
        "python", "-c", textwrap.dedent(code), cwd=tmp_path, JITLOAD_CACHE=str(cache)
    )
    assert said.splitlines()[:2] == ["True True", "tensor(True)"]
    assert f"{tmp_path}/reference.py is found as `reference`, and is not the playground's" in said


def test_a_namesake_of_the_librarys_modules_is_told(environment, tmp_path):
    (tmp_path / "simulator").mkdir()
    (tmp_path / "simulator/__init__.py").touch()
    told = environment.attempt("python", "-c", "import jitload", cwd=tmp_path).stderr
    assert f"{tmp_path}/simulator/__init__.py is found as `simulator`" in told
    assert "rename it, or start Python in another folder" in told
    assert namesakes(tmp_path) == {"simulator": tmp_path / "simulator/__init__.py"}
    assert not namesakes(ROOT)
