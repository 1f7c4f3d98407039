"""Compiles a submission, or checks and audits it; prints only JSON.

python -m lab.judge.build_process build SOURCE [TARGET]
python -m lab.judge.build_process check SOURCE ENTRY CALLS TASK ASKED
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

import jitload
from lab.auditor.example import Call
from lab.auditor.report import FAIL, NOTE
from lab.auditor.rows import subject, tried
from lab.auditor.traps import TRAPS
from lab.checker.findings import hint_for
from lab.checker.run import checked as checked_call
from lab.judge.task import Task
from lab.predictor.run import predict

# The audit's traps that make sense for pointers, or for tensors made for one call. lab.check has
# already tried those of the kernels.
NOT_OURS = {"parameters", "error", "device guard"}
LAYOUTS = {"misaligned", "inputs unwritten", "nothing cached"}
CHOSEN = [
    it
    for it in TRAPS
    if (it.section in ("numbers", "source") and it.name not in NOT_OURS)
    or (it.section == "layouts" and it.name in LAYOUTS)
]
SECONDS = 1.0  # how long one trap may look for further calls


def build(source: str, target: str = "cpu") -> dict:
    """The path of the build, or the compiler's message."""
    try:
        made = jitload.ensure(Path(source), target=target)
    except jitload.CompileError as error:
        message = str(error).strip()
        return {"error": message[:1500], "line": getattr(error, "line", None) or 0}
    return {"folder": str(made.folder), "library": str(made.library), "exports": list(made.exports)}


def checked(source: str, entry: str, calls: str, task: str, asked: str) -> dict:
    """lab.check's findings in all calls but the last, which is predicted; and the audit's findings.

    The prediction comes first: it counts the process's first call, which gave right results in
    another process. asked: {"seed", "dtype", "op"}, as JSON.
    """
    launch = getattr(jitload.load(Path(source), target="cpu"), entry)
    findings, traffic = [], []
    *small, large = torch.load(calls, weights_only=True)
    time = predicted(launch, large)
    for call in small:
        sizes, outputs = call["sizes"], _outputs(call)
        try:
            given = launch, (*call["inputs"], *outputs, *sizes), {}
            options = {"seconds": 30, "device_tensors": True}
            report = checked_call(entry, given, jitload.instrumented, **options)
        except Exception as error:
            findings.append({"kind": "raised", "line": 0, "message": str(error)[:500]})
            continue
        for row in report.findings.to_dict("records"):
            if row["severity"] == "error":
                message = f"{row['message']}. {hint_for(row) or ''}".strip()
                found = {"kind": row["kind"], "line": int(row["line"] or 0), "message": message}
                findings += [found] if found not in findings else []
        traffic.append(
            {"sizes": sizes, "fetched": report.bytes_fetched, "moved": report.bytes_moved}
        )
    said = {"findings": findings, "traffic": traffic, "notes": [], "predicted": time}
    if not findings:
        said |= audited(launch, Path(source), Task.of(task), json.loads(asked))
    return said


def _outputs(call: dict) -> list[Tensor]:
    return [torch.empty(shape, dtype=dtype) for shape, dtype in call["outputs"]]


def audited(launch: Callable, source: Path, task: Task, asked: dict) -> dict:
    """The findings and notes of an audit of the submission as an op."""
    dtype = getattr(torch, asked["dtype"])
    names = [name for name in task.op.shapes if name not in task.options]

    def op(*inputs: Tensor) -> list[Tensor]:
        given = dict(zip(names, inputs, strict=True))
        for name, t in given.items():
            if t.dtype != (torch.int64 if name in task.op.limits else dtype):
                raise TypeError(f"{name} is {t.dtype}: judged is one type")
        given = {name: t.detach().contiguous() for name, t in given.items()}
        with torch.no_grad():
            outputs = [torch.empty_like(y) for y in task.results(given)]
        launch(*given.values(), *outputs, *([] if asked["op"] else task.sizes_of(sizes(given))))
        return outputs

    def sizes(given: dict[str, Tensor]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, t in given.items():
            for letter, size in zip(task.op.shapes[name].split(), t.shape, strict=True):
                bare = letter.lstrip("0123456789")
                found[bare] = size // int(letter.removesuffix(bare) or 1)
        return found

    def reference(*inputs: Tensor) -> list[Tensor]:
        return task.results(dict(zip(names, inputs, strict=True)))

    shapes = {n: s for n, s in task.op.shapes.items() if n in names}
    shapes |= {n: f"{shapes[n]}, int64 < {m}" for n, m in task.op.limits.items() if n in names}
    example = task.draw({"rows": 12, "cols": 72} if not task.op.sizes else {}, dtype, asked["seed"])
    call = Call(list(example.values()), tree_flatten((tuple(example.values()), {}))[1], names)
    sources = {source.name: source.read_text()}
    made = subject((op, call, reference, shapes, sources, asked["seed"]))
    made.seconds = SECONDS
    said: dict[str, list] = {"findings": [], "notes": []}
    for row in tried(made, CHOSEN):
        line = row.line.rpartition(":")[2]
        where = f" ({row.example})" if row.example else ""
        found = {"kind": f"audit: {row.name}", "line": int(line) if line.isdigit() else 0}
        found["message"] = f"{row.message}{where}. {row.advice}"
        if row.verdict in (FAIL, NOTE):
            said["findings" if row.verdict == FAIL else "notes"].append(found)
    return said


def predicted(launch: Callable, call: dict) -> dict | None:
    """The predicted time of a call on a GPU; None if the model cannot predict it."""
    try:
        it = predict(launch, *call["inputs"], *_outputs(call), *call["sizes"], compile=None)
    except Exception:  # the checker's own failure: the call ran in another process
        return None
    found = {"gpu": it.gpu.name, "seconds": it.seconds, "lower": it.lower, "upper": it.upper}
    return found | {"certain": it.certain}


def main(words: list[str]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    jitload.announce(False)
    said = build(*words[1:]) if words[0] == "build" else checked(*words[1:])
    answers.write(json.dumps(said) + "\n")
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
