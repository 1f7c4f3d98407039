"""Writes the documents of a package: pyproject.toml, README.md, PROOF.md."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from lab.ship.package import Kernel, Package

# What builds a package, and what a build reads beside it.
_BUILDS_WITH = ("setuptools>=77", "ninja", "torch>=2.11")


def summary(package: Package) -> str:
    """What the package is, in one line."""
    told = [first_line(kernel) for kernel in package.kernels]
    return told[0] if len(told) == 1 else f"CUDA kernels: {', '.join(sorted(_public(package)))}"


def first_line(kernel: Kernel) -> str:
    """The first line of the docstring of a kernel's Python, or of the comment above its source."""
    if kernel.python:
        docstring = ast.get_docstring(ast.parse(kernel.python.read_text())) or ""
        if docstring:
            return docstring.splitlines()[0].replace('"', "'")
    return f"{kernel.name}: a CUDA kernel"


def _public(package: Package) -> list[str]:
    return [name for kernel in package.kernels for name in kernel.public]


def pyproject(package: Package) -> str:
    release = ".".join(torch.__version__.split(".")[:2])
    wanted = "torch>=2.11" if package.is_stable else f"torch=={release}.*"
    requires = ", ".join(f'"{it}"' for it in (*_BUILDS_WITH[:2], wanted))
    described = summary(package).replace("\\", "/").replace('"', "'")
    return f"""\
[build-system]
requires = [{requires}]
build-backend = "setuptools.build_meta"

[project]
name = "{package.distribution}"
version = "{package.version}"
description = "{described}"
readme = "README.md"
license = "MIT"
license-files = ["LICENSE"]
requires-python = ">=3.11"
dependencies = ["{wanted}"]

[project.optional-dependencies]
test = ["pytest"]

[tool.setuptools]
packages = ["{package.name}", "{package.name}.ops"]

[tool.setuptools.package-data]
{package.name} = ["csrc/**/*", "proof.json", "PROOF.md"]

[tool.pytest.ini_options]
testpaths = ["tests"]
"""


def readme(package: Package, proof: dict[str, Any] | None = None) -> str:
    parts = [f"# {package.distribution}", summary(package), _install(package), _use(package)]
    parts += [_operators(kernel) for kernel in package.kernels]
    if proof:
        parts += ["## Error", error_text(proof)] if proof["errors"] else []
        parts.append(_proof_text(package))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _install(package: Package) -> str:
    abi = (
        "It keeps to the stable ABIs of PyTorch (2.11 and later) and of Python (3.11 and later):"
        " one wheel serves all of them."
        if package.is_stable
        else "It is built against the PyTorch of this very release, and for this very Python."
    )
    told = (
        f"{abi} On GPUs the kernels run as nvcc has compiled them; without a GPU the same kernels"
        " run as plain C++ on the CPU, to try and to test with: slowly. NVIDIA's and PyTorch's"
        " libraries are not in the wheel; PyTorch brings them. `TORCH_CUDA_ARCH_LIST=9.0a` in front"
        " of a build chooses the GPUs, and `CUDA_HOME` the toolkit, whose major version has to be"
        " that of PyTorch; `WITHOUT_CUDA=1` leaves the part for GPUs out. The part for x86"
        " processors needs AVX2 and FMA."
    )
    return f"""\
```sh
pip install {package.name}-{package.version}-*.whl    # the wheel
pip install --no-build-isolation .    # or this folder, with the PyTorch that is installed
```

{textwrap.fill(told, 100)}"""


def _use(package: Package) -> str:
    lines = [f"from {package.name} import {', '.join(sorted(_public(package)))}"]
    checks = f"python -m {package.name}.verify    # repeats what proof.json says, and compares"
    tests = "python -m pytest tests"
    code = "\n".join(["```python", *lines, "```", "", "```sh", tests, checks, "```"])
    return f"## Use\n\n{code}"


def _operators(kernel: Kernel) -> str:
    parts = [f"## {kernel.name}"]
    shipped = kernel.shipped
    if kernel.python:
        for name, signature, told in _functions(kernel.python):
            if name in kernel.public:
                parts.append(f"```python\n{signature}\n```\n\n{told}")
    if shipped.binding == "c":
        declared = "\n".join(_declaration(name, it) for name, it in shipped.exports.items())
        parts.append(
            "It has no binding. Its functions are called with tensors for pointers, and kernels"
            f" with a grid and a block, as in `{kernel.name}.NAME[grid, block](...)`:\n\n"
            f"```cpp\n{declared}\n```"
        )
    elif shipped.binding == "module":
        parts.append(
            f"Its functions are a module's of pybind11: {', '.join(sorted(shipped.exports))}. Those"
            " for the device of the first tensor among the arguments are called. They are no"
            " operators of PyTorch's: `torch.compile` leaves its graph to call them."
        )
    elif schemas := _schemas(kernel):
        listed = "\n".join(f"torch.ops.{shipped.namespace}::{it}" for it in schemas)
        parts.append(f"Its operators:\n\n```text\n{listed}\n```")
    shapes = _shapes_of(kernel)
    if shapes:
        parts.append(f"Shapes, at the top of its source:\n\n```text\n{shapes}\n```")
    return "\n\n".join(parts)


def _declaration(name: str, export: dict) -> str:
    word = "__global__ void" if "kernel" in export else f'extern "C" {export["returns"]}'
    return f"{word} {name}({', '.join(export['parameters'])})"


def _schemas(kernel: Kernel) -> list[str]:
    found = (
        schema
        for place, text in kernel.shipped.files.items()
        if place.startswith("cpu/") and place.endswith(".cpp")
        for schema in re.findall(r'\.def\(\s*((?:"[^"\n]*"\s*)+)\)', text)
    )
    return ["".join(re.findall(r'"([^"]*)"', it)) for it in found]


def _functions(path: Path) -> list[tuple[str, str, str]]:
    """A file's public functions: name, signature, docstring."""
    found = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            signature = f"{node.name}({ast.unparse(node.args)}){returns}"
            wrapped = textwrap.fill(signature, 96, subsequent_indent="    ", break_long_words=False)
            found.append((node.name, wrapped, ast.get_docstring(node) or ""))
    return found


def _shapes_of(kernel: Kernel) -> str:
    """The comment at the top of the .cu, which gives shapes and traffic."""
    for source in kernel.shipped.originals.values():
        if source.suffix == ".cu":
            lines = []
            for line in source.read_text(errors="replace").splitlines():
                if not line.startswith("//"):
                    break
                lines.append(line.removeprefix("//").removeprefix(" "))
            return "\n".join(lines) if len(lines) > 1 else ""
    return ""


# ---- the proof


def error_text(proof: dict[str, Any]) -> str:
    """A line for each op, direction, type and device: the case with the least room."""
    worst: dict[tuple, dict] = {}
    for line in proof["errors"]:
        case = line["case"]
        key = (case["op"], case["direction"], case["dtype"], case["device"])
        if key not in worst or line["ours"] / line["allowed"] > (
            worst[key]["ours"] / worst[key]["allowed"]
        ):
            worst[key] = line
    rows = [
        f"| {op} | {direction} | {dtype} | {device} | {_shape(it)} | {it['result']}"
        f" | {it['ours']:.3g} | {it['pytorchs']:.3g} | {it['allowed']:.3g} |"
        for (op, direction, dtype, device), it in worst.items()
    ]
    head = (
        "| op | direction | type | on | shape, options | result | ours | PyTorch | allowed |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    return (
        "The largest error against the reference in float64, in units in the last place (ULP) of"
        " the largest truth: of all cases the one with the least room. PyTorch's own is that of the"
        " reference in the same type; for float64, of which there is no finer truth, that of"
        " float32.\n\n" + "\n".join([head, *rows])
    )


def _shape(line: dict[str, Any]) -> str:
    case = line["case"]
    options = "".join(f", {name}={value}" for name, value in case["options"].items())
    return f"{case['rows']} x {case['cols']}{options}"


def _proof_text(package: Package) -> str:
    return (
        "## Proof\n\n"
        f"`{package.name}/PROOF.md` tells what was measured of this very package, and"
        f" `{package.name}/proof.json` has all of it: digests, errors, what the checker found, and"
        f" the times with their conditions. `python -m {package.name}.verify` repeats on your"
        " machine what can be repeated there, and says what differs."
    )


def proof_page(package: Package, proof: dict[str, Any]) -> str:
    parts = [
        f"# What was measured of {package.distribution} {package.version}",
        f"Made with PyTorch {proof['torch']} on {', '.join(proof['machines'])}."
        f" `python -m {package.name}.verify` repeats it.",
        _sources_text(proof),
    ]
    if proof["errors"]:
        parts += ["## Error", error_text(proof)]
    parts += ["## Checked", _checked_text(proof)]
    parts += ["## Audited", _audited_text(proof)] if proof["audits"] else []
    parts += ["## Time", _bench_text(proof)]
    return "\n\n".join(parts) + "\n"


def _sources_text(proof: dict[str, Any]) -> str:
    rows = "\n".join(f"| {name} | `{digest}` |" for name, digest in proof["originals"].items())
    return (
        "## Sources\n\n"
        f"proof.json has the digests (sha256) of all {len(proof['files'])} files of the package."
        " The kernels were made of:\n\n| | sha256 |\n|---|---|\n" + rows
    )


def _checked_text(proof: dict[str, Any]) -> str:
    if not proof["checks"]:
        return "No call was known with which the checker could have run the kernels."
    rows = [
        f"| {it['op']} | {it['call']} | {it['findings']} | {it['launches']}"
        f" | {it['bytes_fetched']} | {it['bytes_floor']}"
        f" | {it['bytes_fetched'] / max(it['bytes_floor'], 1):.2f} |"
        for it in proof["checks"]
    ]
    found = [
        f"- {it['op']}, {it['call']}: {text}" for it in proof["checks"] for text in it["found"]
    ]
    return (
        "Races, accesses out of bounds, uninitialised reads and the like, of the kernels"
        " instrumented on the CPU; bytes of global memory that blocks fetch, beside the floor: each"
        " byte of the inputs and outputs once.\n\n"
        "| op | call | findings | launches | bytes | floor | times |\n"
        "|---|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + ("\n\n" + "\n".join(found) if found else "")
    )


def _audited_text(proof: dict[str, Any]) -> str:
    parts = ["The traps of lab.audit: verdicts, and each that is not ok."]
    for it in proof["audits"]:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in it["counts"].items())
        lines = [f"{it['op']}: {counts}", ""]
        lines += [f"- {row['verdict']}, {row['trap']}: {row['said']}" for row in it["rows"]]
        parts.append("\n".join(lines).strip())
    return "\n\n".join(parts)


def _bench_text(proof: dict[str, Any]) -> str:
    if not proof["bench"]:
        return "No time on a GPU was measured of it."
    rows = [
        f"| {it['op']} | {it['options'] or ''} | {it['direction']} | {it['dtype']}"
        f" | {it['rows']} x {it['cols']} | {it['time_us']:g} | {_optional(it['percent_of_copy'])}"
        f" | {_optional(it['tflops'])} | {it['rival'] or ''} | {_optional(it['rival_us'])}"
        f" | {it['conditions']} |"
        for it in proof["bench"]
    ]
    listed = "\n".join(f"{i}. {text}" for i, text in enumerate(proof["conditions"], 1))
    return (
        "Medians in microseconds; % of the bandwidth of a copy in the same run, or TFLOPS; the best"
        " rival of the same run; and the conditions, by their numbers below.\n\n"
        "| op | options | direction | type | shape | us | % of copy | TFLOPS | rival | its us | |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n" + listed
    )


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
