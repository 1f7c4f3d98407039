"""The files of a package: its sources, its Python, its tests, and how it is built."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import jitload
from lab.ship import documents, python_files
from lab.ship.python_files import COPIES, COPIES_FOR_C, LIBRARY, copy, template

TARGET = "2.11"  # the oldest PyTorch that a package runs with
TARGET_VERSION = "0x020b000000000000"


@dataclass(frozen=True)
class Kernel:
    """One kernel of a package.

    shipped: its sources, as jitload.shipped_sources gives them.
    python: the file with its formulas and its function, None where it has none.
    """

    shipped: jitload.Shipped
    python: Path | None

    @property
    def name(self) -> str:
        return self.shipped.name

    @property
    def handle(self) -> str:
        """The expression for its operators, in the package's Python."""
        it = self.shipped
        if it.binding == "c":
            return f'Functions("{it.name}", "{it.namespace}", {_literal(it.exports)})'
        if it.binding == "module":
            return f'Module("{it.name}")'
        return f'Kernel("{it.name}", "{it.namespace}", {_literal(tuple(it.exports))})'

    @property
    def has_its_operator(self) -> bool:
        """Whether an operator, or a module's function, has the kernel's name: it stands for the
        kernel where there is no Python."""
        return self.shipped.binding != "c" and self.name in self.shipped.exports

    @property
    def is_in_graphs(self) -> bool:
        """Whether torch.compile can take a call of it: an operator, whose results' shapes its
        Python tells, or a C function, which has none."""
        return self.shipped.binding == "c" or (self.shipped.binding == "ops" and bool(self.python))

    @property
    def public(self) -> list[str]:
        """What the package offers of it: functions; without Python of its own its operators."""
        if self.python is None:
            return [self.name]
        tree = ast.parse(self.python.read_text())
        names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
        return [name for name in names if not name.startswith("_")]


@dataclass(frozen=True)
class Package:
    """What is written: `write` makes the tree of a project around it.

    reference: the user's file with the truth of the ops; None for reference.py here.
    """

    name: str
    version: str
    kernels: tuple[Kernel, ...]
    reference: Path | None = None

    @property
    def distribution(self) -> str:
        return self.name.replace("_", "-")

    @property
    def is_stable(self) -> bool:
        return all(kernel.shipped.is_stable for kernel in self.kernels)

    @property
    def judged(self) -> set[str]:
        """The ops that have a truth."""
        callable_ = (it for it in self.kernels if it.python or it.has_its_operator)
        names = {name for kernel in callable_ for name in kernel.public}
        if self.reference:
            text = self.reference.read_text()
            given = {n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
            if not names & given:
                raise ValueError(
                    f"{self.reference} has {', '.join(sorted(given))}, and the package has no such"
                    f" function: it has {', '.join(sorted(names)) or 'operators alone'}"
                )
            return names & given
        return python_files.references({k.name for k in self.kernels if k.python}) & names

    def write(self, folder: Path) -> None:
        """Write the project into a folder, which is made anew."""
        if folder.exists():
            shutil.rmtree(folder)
        inside = folder / self.name
        for path, text in {
            **{f"csrc/{place}": text for place, text in self.sources().items()},
            **self.python_files(),
        }.items():
            _write(inside / path, text)
        for path, text in self.project_files().items():
            _write(folder / path, text)

    def sources(self) -> dict[str, str]:
        """The sources, by their paths below csrc/."""
        files: dict[str, str] = {}
        for kernel in self.kernels:
            for place, text in kernel.shipped.files.items():
                if files.setdefault(place, text) != text:
                    raise ValueError(f"two kernels of the package have different files {place}")
        files["kernels.json"] = json.dumps(self._plan(), indent=1) + "\n"
        return files

    def _plan(self) -> dict:
        every = [a for kernel in self.kernels for a in kernel.shipped.architectures]
        architectures = sorted(set(every), key=lambda a: float(re.match(r"[\d.]+", a)[0]))
        if "9.0a" in architectures and "9.0" in architectures:
            architectures.remove("9.0")
        return {
            "stable": self.is_stable,
            "target_version": TARGET_VERSION,
            "architectures": architectures,
            "kernels": [
                {
                    "name": kernel.name,
                    "namespace": kernel.shipped.namespace,
                    "in_graphs": kernel.is_in_graphs,
                    "cpu": vars(kernel.shipped.cpu),
                    "cuda": vars(kernel.shipped.cuda),
                }
                for kernel in self.kernels
            ],
        }

    def python_files(self) -> dict[str, str]:
        """The Python files, by their paths in the package."""
        files = {it: template(it, self.name) for it in ("kernel.py", "libraries.py")}
        files |= {name: copy(source, self.name) for name, source in COPIES.items()}
        bindings = {kernel.shipped.binding for kernel in self.kernels}
        if "module" in bindings:
            files["modules.py"] = template("modules.py", self.name)
        if "c" in bindings:
            files["functions.py"] = template("functions.py", self.name)
            files |= {name: copy(source, self.name) for name, source in COPIES_FOR_C.items()}
        files["ops/__init__.py"] = '"""The operators, a file for each kernel."""\n'
        helpers: set[str] = set()
        for kernel in self.kernels:
            files[f"ops/{kernel.name}.py"] = self._op_file(kernel)
            helpers |= python_files.helpers_of(kernel.python) if kernel.python else set()
        if helpers:
            files["helpers.py"] = python_files.helpers_file(helpers)
        files["reference.py"] = python_files.reference_file(self.judged, self.reference)
        for name in ("cases.py", "timing.py", "verify.py"):
            files[name] = template(name, self.name).replace("DISTRIBUTION", self.distribution)
        files["__init__.py"] = self._init_file()
        return files

    def _op_file(self, kernel: Kernel) -> str:
        if kernel.python:
            return python_files.op_file(kernel.python, kernel.handle)
        made, home = python_files.home_of(kernel.handle)
        if kernel.has_its_operator:
            told, last = (
                "what its sources offer",
                f"kernel = {kernel.handle}\n{kernel.name} = kernel.{kernel.name}",
            )
        else:
            told, last = "what its sources offer, as attributes", f"{kernel.name} = {kernel.handle}"
        return f'"""{kernel.name}: {told}."""\n\nfrom {home} import {made}\n\n{last}\n'

    def _init_file(self) -> str:
        lines = [f'"""{documents.summary(self)}"""', ""]
        offered = {kernel.name: kernel.public for kernel in self.kernels}
        for name, public in offered.items():
            lines.append(f"from .ops.{name} import {', '.join(sorted(public))}")
        every = sorted(name for public in offered.values() for name in public)
        listed = "".join(f'    "{name}",\n' for name in every)
        lines += ["", f'__version__ = "{self.version}"', f"__all__ = [\n{listed}]", ""]
        return "\n".join(lines)

    def project_files(self) -> dict[str, str]:
        """The project's other files, by their paths beside the package."""
        tests = "test_ops.py" if self.judged else "test_loaded.py"
        files = {
            "setup.py": template("setup.py", self.name),
            "pyproject.toml": documents.pyproject(self),
            "README.md": documents.readme(self),
            "LICENSE": (LIBRARY / "LICENSE").read_text(),
            "MANIFEST.in": f"recursive-include {self.name} *\nglobal-exclude *.so __pycache__/*\n",
            f"tests/{tests}": _absolute(template(tests, self.name), self.name),
        }
        if self.judged:
            text = _absolute(template("benchmark.py", self.name), self.name)
            files["benchmarks/benchmark.py"] = text
        return files

    def digests(self, folder: Path) -> dict[str, str]:
        """The digests of all files of the package in a tree, except the proof."""
        inside = folder / self.name
        kept = (p for p in sorted(inside.rglob("*")) if p.is_file() and p.suffix != ".so")
        return {
            path.relative_to(inside).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in kept
            if "__pycache__" not in path.parts and path.name not in ("proof.json", "PROOF.md")
        }


def _absolute(text: str, package: str) -> str:
    """A text that lies outside of the package."""
    text = re.sub(r"(?m)^from \. import ", f"from {package} import ", text)
    return re.sub(r"(?m)^from \.(\w+) import ", rf"from {package}.\1 import ", text)


def _literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else repr(value).replace("'", '"')


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
