"""Measures a package's errors, checks and times for its proof.json.

The errors are those of the package's own libraries, built in the tree; the checker runs the sources
that they were made of; the times are the lines that `make bench` has published of the op.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import jitload
import reference
from lab.auditor.report import OK
from lab.auditor.run import audit
from lab.bench import table
from lab.checker.run import check
from lab.ship.build import environment_without_ours
from lab.ship.package import Package

# Enough rows and columns for several blocks, warps and vectors.
ROWS, COLS = 12, 264
_MEASURE = """\
import json, sys
from {package} import cases
for op in cases.OPS:
    case = cases.first_case(op, "cpu", 3, 33)
    case.ours(**case.inputs())  # which raises what is wrong, if no type is taken
lines = []
for device in cases.devices():
    for case in cases.cases(device):
        it = cases.judged(case)
        line = dict(ours=it.ours, pytorchs=it.pytorchs, allowed=it.allowed, result=it.result)
        lines.append(dict(case=case.as_dict(), **line))
json.dump(lines, sys.stdout)
"""


def prove(package: Package, tree: Path) -> dict[str, Any]:
    """The proof of a package whose libraries lie in its tree.

    Raises:
        RuntimeError: the package does not run, or an error is larger than PyTorch's own allows.
    """
    errors = _errors(package, tree)
    if missing := [] if package.reference else _missing(errors):
        raise RuntimeError(f"{package.name} refuses {', '.join(missing)}")
    if wrong := [line for line in errors if line["ours"] > line["allowed"]]:
        told = "\n".join(f"  {line}" for line in wrong[:5])
        raise RuntimeError(f"{len(wrong)} cases of {package.name} are off:\n{told}")
    lines, conditions = _bench(package)
    return {
        "package": package.name,
        "version": package.version,
        "torch": torch.__version__,
        "machines": _machines(),
        "files": package.digests(tree),
        "originals": _originals(package),
        "errors": errors,
        "checks": _checks(package, errors),
        "audits": _audits(package),
        "bench": lines,
        "conditions": conditions,
    }


def _machines() -> list[str]:
    found = [f"{_processor()} ({platform.machine()})"]
    if torch.cuda.is_available():
        found.append(torch.cuda.get_device_name())
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "a processor")


def _originals(package: Package) -> dict[str, str]:
    """Digests of the files that the kernels were made of, by their names in the project."""
    paths = {p for kernel in package.kernels for p in kernel.shipped.originals.values()}
    paths |= {kernel.python for kernel in package.kernels if kernel.python}
    paths |= {package.reference} if package.reference else set()
    home = jitload.KERNELS.parent
    named = {
        path.relative_to(home).as_posix() if path.is_relative_to(home) else path.name: path
        for path in paths
    }
    return {n: hashlib.sha256(named[n].read_bytes()).hexdigest() for n in sorted(named)}


def _errors(package: Package, tree: Path) -> list[dict[str, Any]]:
    if not package.judged:
        return []
    done = run_in(tree, ["-c", _MEASURE.format(package=package.name)])
    if done.returncode:
        raise RuntimeError(f"{package.name} does not run:\n{done.stderr}")
    return json.loads(done.stdout)


def _missing(errors: list[dict[str, Any]]) -> list[str]:
    """The measurements that are missing although all ops of kernels/ have them."""
    there = {tuple(line["case"][key] for key in ("op", "direction", "dtype")) for line in errors}
    names = {op for op, _, _ in there}
    types = ("float64", "float32", "float16", "bfloat16")
    wanted = (
        (op, direction, dtype)
        for op in sorted(names)
        for dtype in types
        for direction in ("forward", "backward")[: 1 + _takes_floats(reference.OPS[op])]
    )
    return [" ".join(each) for each in wanted if each not in there]


def _takes_floats(op: reference.Op) -> bool:
    return any(name not in op.limits for name in op.shapes)


def run_in(tree: Path, words: list[str]) -> subprocess.CompletedProcess:
    """Runs Python in a process that finds the package in its tree, but not this project."""
    words = [sys.executable, "-P", "-B", *words]
    environment = environment_without_ours(tree)
    return subprocess.run(words, env=environment, cwd=tree, capture_output=True, text=True)


# ---- the checker


def _checks(package: Package, errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every op that has a truth: with its inputs it is called under the checker.

    errors: as they were measured, which say what the ops take.
    """
    found = []
    for op, function in _functions(package):
        cases = [line["case"] for line in errors if line["case"]["op"] == op.name]
        taken = {(it["direction"], it["dtype"]) for it in cases}
        found += _checks_of(op, function, taken)
    return found


def _functions(package: Package) -> list[tuple[reference.Op, Callable]]:
    """The ops that have a truth, and what computes them here; none where nothing is checked."""
    if sys.platform != "linux":
        return []
    if package.reference:
        _module_of(package.reference)  # whose @op makes its functions known
    return [
        (reference.OPS[name], getattr(_module_of(kernel.python), name))
        for kernel in package.kernels
        for name in sorted(package.judged.intersection(kernel.public, reference.OPS))
        if kernel.python
    ]


def _audits(package: Package) -> list[dict[str, Any]]:
    """What lab.audit says of the same ops: its verdicts, and each row that is not ok."""
    found = []
    for op, function in _functions(package):
        inputs = op.inputs(ROWS, COLS, device=jitload.device(), without=op.options[0])
        ours = package.reference is None
        given = {} if ours else {"inputs": inputs | op.options[0], "reference": op.function}
        report = audit(function, **given)
        found.append(
            {
                "op": op.name,
                "ok": report.ok,
                "counts": dict(Counter(it.verdict for it in report.rows)),
                "rows": [
                    {"verdict": it.verdict, "trap": f"{it.section}: {it.name}", "said": it.message}
                    for it in report.rows
                    if it.verdict != OK
                ],
            }
        )
    return found


def _module_of(path: Path) -> ModuleType:
    """A file's module: an op's own, or one of the user's."""
    if path == jitload.op_file(path.stem, ".py"):
        return importlib.import_module(f"kernels.{path.stem}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _checks_of(
    op: reference.Op, function: Callable, taken: set[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Forward and backward, in float32 and in 16 bits, as far as these are taken."""
    rows, cols = (ROWS, 64) if op.sizes else (ROWS, COLS)
    found = []
    for name in ("float32", "bfloat16"):
        if ("forward", name) not in taken:
            continue
        dtype, options = getattr(torch, name), op.options[0]
        inputs = op.inputs(rows, cols, dtype, without=options)
        floats = [name for name, it in inputs.items() if it.is_floating_point()]

        def forward(options: dict = options, **given: torch.Tensor) -> Any:
            return function(**given, **options)

        def both(options: dict = options, floats: list[str] = floats, **given: torch.Tensor) -> Any:
            given = {n: it.detach().requires_grad_(n in floats) for n, it in given.items()}
            outputs = function(**given, **options)
            ends = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
            ends = [y for y in ends if y.is_floating_point()]
            arriving = [torch.ones_like(y) for y in ends]
            return torch.autograd.grad(ends, [given[n] for n in floats], arriving)

        calls = {"forward": forward}
        if ("backward", name) in taken:
            calls["forward and backward"] = both
        for direction, call in calls.items():
            report = check(call, **inputs)
            found.append(
                {
                    "op": op.name,
                    "call": f"{direction}, {name}, {rows} x {cols}",
                    "findings": len(report.findings),
                    "launches": len(report.launches),
                    "bytes_moved": report.bytes_moved,
                    "bytes_fetched": report.bytes_fetched,
                    "bytes_floor": report.bytes_floor,
                    "found": [
                        f"{it['kind']} at line {it['line']}: {it['message']}"
                        for it in report.findings.to_dict("records")
                    ],
                }
            )
    return found


# ---- the bench


def _bench(package: Package) -> tuple[list[dict[str, Any]], list[str]]:
    """The published lines of the ops, each with its best rival; and under which conditions."""
    if package.reference or not table.CSV.exists():
        return [], []
    names = {kernel.name for kernel in package.kernels if kernel.python}
    every = table.read(table.CSV)
    every = every[every["op"].isin(names) & every["time_us"].notna()]
    lines: list[dict[str, Any]] = []
    conditions: dict[str, int] = {}
    keys = [*table.CELL, *table.CONDITIONS, "run"]
    for _, cell in every.groupby(keys, dropna=False, sort=False):
        ours = cell[cell["implementation"] == "ours"]
        if ours.empty:
            continue
        ours = ours.iloc[0]
        rivals = cell[cell["implementation"] != "ours"].sort_values("time_us")
        best = None if rivals.empty else rivals.iloc[0]
        told = _condition(ours)
        lines.append(
            {
                "op": ours["op"],
                "options": _given(ours["options"]),
                "direction": ours["direction"],
                "dtype": ours["dtype"],
                "rows": int(ours["rows"]),
                "cols": int(ours["cols"]),
                "bytes": _number(ours["bytes"]),
                "time_us": _number(ours["time_us"]),
                "percent_of_copy": None if ours["tflops"] > 0 else _number(ours["percent_of_copy"]),
                "tflops": _number(ours["tflops"]),
                "rival": None if best is None else best["implementation"],
                "rival_us": None if best is None else _number(best["time_us"]),
                "device": ours["device"],
                "conditions": conditions.setdefault(told, len(conditions) + 1),
            }
        )
    return lines, list(conditions)


def _condition(line: Any) -> str:
    rivals = (f"{name} {line[name]}" for name in table.CONDITIONS[len(table.MACHINE) :])
    there = [it for it in rivals if _given(it.partition(" ")[2])]
    return (
        f"{line['run']} UTC, {line['device']}, driver {line['driver']}, CUDA {line['cuda']},"
        f" torch {line['torch']}, triton {line['triton']}"
        f"{''.join(f', {it}' for it in there)}; {line['clock']}; copy"
        f" {line['copy_gb_per_s']:g} GB/s"
    )


def _given(text: object) -> str | None:
    return None if not isinstance(text, str) or text in ("", "nan", "None") else text


def _number(value: Any) -> float | None:
    number = float(value)
    return None if number != number else int(number) if number.is_integer() else number


def write_proof(proof: dict[str, Any], folder: Path) -> None:
    """proof.json, with a line for each entry of its lists and tables."""
    parts = []
    for name, value in proof.items():
        if isinstance(value, list) and value:
            inner = ",\n".join(f"  {json.dumps(it)}" for it in value)
            parts.append(f" {json.dumps(name)}: [\n{inner}\n ]")
        elif isinstance(value, dict):
            inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            parts.append(f" {json.dumps(name)}: {{\n{inner}\n }}")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    (folder / "proof.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")
