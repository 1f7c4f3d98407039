"""Compiles a submission, and with a second word checks calls of it: prints JSON, and nothing else.

python -m lab.judge.build_process build SOURCE
python -m lab.judge.build_process check SOURCE ENTRY CALLS
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

import jitload
from lab.checker.findings import hint_for
from lab.checker.run import check


def build(source: str) -> dict:
    """Where the build lies, or what the compiler said."""
    try:
        made = jitload.ensure(Path(source), target="cpu")
    except jitload.CompileError as error:
        message = str(error).strip()
        return {"error": message[:1500], "line": getattr(error, "line", None) or 0}
    return {"folder": str(made.folder), "library": str(made.library), "exports": list(made.exports)}


def checked(source: str, entry: str, calls: str) -> dict:
    """What lab.check finds in each call, and the bytes that kernels fetched."""
    launch = getattr(jitload.load(Path(source), target="cpu"), entry)
    findings, traffic = [], []
    for call in torch.load(calls, weights_only=True):
        sizes = call["sizes"]
        outputs = [torch.empty(shape, dtype=dtype) for shape, dtype in call["outputs"]]
        try:
            report = check(launch, *call["inputs"], *outputs, *sizes, seconds=30)
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
    return {"findings": findings, "traffic": traffic}


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
