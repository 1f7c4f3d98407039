"""Try wheels of `python -m jitload ship` under several Pythons and releases of PyTorch.

    .venv/bin/python -m docs.programs.shipped FOLDER PYTHON [PYTHON ...]

FOLDER is what was shipped `--to`. Each PYTHON is of an environment of its own that has torch and
pytest, into which the wheels are installed; it may be a command of several words, in quotes. The
results are written into docs/ship.md: the rows of the Pythons given, beside those of others that
are there.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from docs.programs.page import Part, rows_of, table

PART = Part("ship.md", "docs.programs.shipped")
HEAD = ("Python", "torch", "on", "day")
SAID = """
import platform, torch
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
print(platform.python_version(), torch.__version__, gpu, sep="\\n")
"""


@dataclass(frozen=True)
class Shipped:
    """A wheel, and the tree beside it that has its tests."""

    wheel: Path

    @property
    def package(self) -> str:
        return self.wheel.name.split("-")[0]

    @property
    def tests(self) -> Path:
        return self.wheel.with_name(self.package) / "tests"


def main(folder: Path, pythons: list[str]) -> None:
    wheels = [Shipped(path) for path in sorted(folder.absolute().glob("*.whl"))]
    if not wheels:
        raise SystemExit(f"{folder} has no wheel: ship an op there, `--to {folder}`")
    packages, rows = read()
    for each in wheels:
        if each.package not in packages:
            packages.append(each.package)
    for python in pythons:
        machine = tuple(ran(python, "-c", SAID).splitlines())
        found = rows.setdefault(machine, {})
        found["day"] = time.strftime("%Y-%m-%d")
        for each in wheels:
            found[each.package] = tried(each, python)
            print(*machine, f"{each.package}: {found[each.package]}", sep=", ", flush=True)
        write(packages, rows)


def tried(shipped: Shipped, python: str) -> str:
    """What became of installing a wheel and of all that its package offers, in a few words."""
    package = shipped.package
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"]
    try:
        ran(python, *words, shipped.wheel)
        ran(python, "-c", f"import {package}")
        said = ran(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", shipped.tests)
        ran(python, "-m", f"{package}.verify")
    except subprocess.CalledProcessError as error:
        print(error.stdout, file=sys.stderr, flush=True)
        return f"**{' '.join(map(str, error.cmd[-2:]))} fails**"
    counts = re.findall(r"\d+ (?:passed|skipped)", said.splitlines()[-1])
    return f"{', '.join(counts)}; verified"


def ran(python: str, *words: object) -> str:
    """What it prints, where nothing of this project can be imported.

    Raises:
        subprocess.CalledProcessError: it has failed.
    """
    with tempfile.TemporaryDirectory() as elsewhere:
        return subprocess.run(
            ["env", "--unset=PYTHONPATH", *shlex.split(python), *map(str, words)],
            cwd=elsewhere,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        ).stdout.strip()


# ---- the table: a row for each Python, torch and machine


def read() -> tuple[list[str], dict[tuple[str, ...], dict[str, str]]]:
    """The packages of the table that is there, and what became of them by (Python, torch, on)."""
    head, *rows = rows_of(PART.read()) or [list(HEAD)]
    found = {tuple(row[:3]): dict(zip(head[3:], row[3:], strict=True)) for row in rows}
    return head[len(HEAD) :], found


def write(packages: list[str], rows: dict[tuple[str, ...], dict[str, str]]) -> None:
    columns = [*HEAD[3:], *packages]
    lines = [
        [*who, *(rows[who].get(name, "") for name in columns)] for who in sorted(rows, key=_order)
    ]
    PART.write(table([*HEAD, *packages], lines, "l"))


def _order(machine: tuple[str, ...]) -> tuple:
    python, torch, on = machine
    return on != "CPU", on, _numbers(torch), _numbers(python)


def _numbers(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release.partition("+")[0])]


if __name__ == "__main__":
    match sys.argv[1:]:
        case [folder, _, *_]:
            main(Path(folder), sys.argv[2:])
        case _:
            raise SystemExit(__doc__)
