"""From a package's tree to its wheel, as `pip wheel` makes it, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jitload
from lab.ship.package import Package
from lab.ship.python_files import LIBRARY


class BuildFailed(RuntimeError):
    """A compiler or setuptools has failed; its output is at the end of the message."""


def build_in_place(tree: Path, architectures: str | None) -> None:
    """Compile the libraries into the package's folder, as `python setup.py build_ext` does."""
    _run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], tree, architectures)


def wheel(tree: Path, to: Path, architectures: str | None) -> Path:
    """Make the wheel, of what was compiled in the tree; what was made beside it is removed.

    Raises:
        BuildFailed: setuptools has not made it.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = ["setup.py", "-q", "bdist_wheel", "--dist-dir", folder]
        _run([sys.executable, *words], tree, architectures)
        (made,) = Path(folder).glob("*.whl")
        shutil.copy(made, to / made.name)
    return to / made.name


def clean(tree: Path, package: Package) -> None:
    """Remove everything from a tree but what was written."""
    shutil.rmtree(tree / "build", ignore_errors=True)
    for path in [*tree.glob("*.egg-info"), *tree.rglob("__pycache__")]:
        shutil.rmtree(path)
    for path in (tree / package.name).glob("*.so"):
        path.unlink()


def environment_without_ours(*more: Path) -> dict[str, str]:
    """The environment of a process that must not find this project.

    more: folders in which it looks for modules first.
    """
    ours = {LIBRARY, jitload.KERNELS.parent}
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    kept = [p for p in paths if Path(p).resolve() not in ours]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, more), *kept])}


def _run(words: list[str], tree: Path, architectures: str | None) -> None:
    environment = environment_without_ours()
    scripts = str(Path(sys.executable).parent)  # where pip has put ninja
    environment["PATH"] = os.pathsep.join([scripts, environment.get("PATH", "")])
    if architectures == "cpu":
        environment["WITHOUT_CUDA"] = "1"
    elif architectures is not None:
        environment["TORCH_CUDA_ARCH_LIST"] = architectures
    done = subprocess.run(
        words,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise BuildFailed(f"{' '.join(words[1:4])} failed in {tree}:\n{_complaint(done.stdout)}")


def _complaint(output: str) -> str:
    """What compilers said, without their command lines and the traceback of what started them."""
    said = output.partition("Traceback (most recent call last)")[0] or output
    lines = [line for line in said.splitlines() if len(line) < 400 and "FAILED:" not in line]
    errors = [i for i, line in enumerate(lines) if re.search(r"\berror\b", line, re.IGNORECASE)]
    first = max(errors[0] - 2, 0) if errors else max(len(lines) - 40, 0)
    return "\n".join(lines[first : first + 40])
