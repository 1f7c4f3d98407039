"""`python -m lab judge TASK FILE...`: judges submissions in parallel.

    python -m lab judge layer_norm mine.cu --json
    python -m lab judge my_task.py submissions/*.cu --seed 7 --jobs 4
    python -m lab judge layer_norm --signature

It exits with 0 if all are accepted, 1 if one is not, 2 for wrong usage, 3 if the judge itself
failed on one; the others are still judged.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.judge.run import CASES, MEMORY, SECONDS, Verdict, judge
from lab.judge.sandbox import Sandbox
from lab.judge.task import Task

OK, FOUND, WRONG_USE, FAILED = 0, 1, 2, 3


def main(words: list[str]) -> int:
    """Run `judge`; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lab judge", description="Judge CUDA C++ that somebody else wrote."
    )
    parser.add_argument("task", help="an op of reference.py, or a file with one @op")
    parser.add_argument("files", nargs="*", metavar="FILE.cu")
    parser.add_argument("--signature", action="store_true", help="print what a file has to define")
    parser.add_argument("--seed", type=int, help="of all that is drawn; a fresh one by default")
    parser.add_argument("--cases", type=int, default=CASES, help="calls for each file")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that one call may take")
    parser.add_argument("--memory", type=int, default=MEMORY >> 20, help="MiB for each process")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="files side by side")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a file")
    try:
        given = parser.parse_args(words)
    except SystemExit as stop:
        return WRONG_USE if stop.code else OK
    try:
        task = Task.of(given.task)
        missing = [it for it in given.files if not Path(it).is_file()]
        if missing or not (given.files or given.signature):
            raise ValueError(f"there is no file {missing[0]}" if missing else "which file? FILE.cu")
        if wrong := [n for n in ("cases", "seconds", "memory", "jobs") if getattr(given, n) <= 0]:
            raise ValueError(f"--{wrong[0]}: wanted is more than 0")
    except (ValueError, OSError) as error:
        print(f"judge: {error}", file=sys.stderr)
        return WRONG_USE
    if given.signature:
        print(
            f"{task.signature()}\nor under TORCH_LIBRARY or STABLE_TORCH_LIBRARY: {task.schema()}"
        )
        return OK

    seed = secrets.randbelow(1 << 31) if given.seed is None else given.seed

    def one(file: str) -> Verdict:
        try:
            return judge(
                *(task, file),
                seed=seed,
                cases=given.cases,
                seconds=given.seconds,
                memory=given.memory << 20,
            )
        except Exception as error:  # the judge failed: the others still get verdicts
            traceback.print_exc()
            told = Verdict(task.op.name, Path(file).name, seed, verdict="failed", stage="-")
            told.findings = [
                {"stage": "-", "kind": "judge failed", "line": 0, "message": str(error)}
            ]
            return told

    with ThreadPoolExecutor(max(1, given.jobs)) as jobs:
        verdicts = list(jobs.map(one, given.files))
    for it in verdicts if given.json else ():
        print(json.dumps(it.as_dict()))
    if not given.json:
        print("\n".join(map(str, verdicts)))
        if len(verdicts) > 1:
            print(_table(verdicts))
        print(f"--seed {seed} draws the same again")
        if missing := Sandbox.here().missing:
            print(f"not enforced here: {'; '.join(missing)}")
    if any(it.verdict == "failed" for it in verdicts):
        return FAILED
    return OK if all(it.accepted for it in verdicts) else FOUND


def _table(verdicts: list[Verdict]) -> str:
    """A line for each file."""
    width = max(len(it.submission) for it in verdicts)
    lines = [
        "",
        f"{'file':<{width}}  verdict   stage   calls  traffic  {'time':>14}  first finding",
    ]
    for it in verdicts:
        last = it.traffic[-1] if it.traffic else None
        traffic = f"{last['fetched'] / last['floor']:.2f}" if last else "-"
        first = it.findings[0]["kind"] if it.findings else ""
        time = f"{1e6 * it.time['seconds']:.3g} us" if it.time else "-"
        time += ", predicted" if it.time and it.time["clock"] == "predicted" else ""
        cells = f"{it.verdict}  {it.stage:<6} {it.cases:>6} {traffic:>8}  {time:>14}  {first}"
        lines.append(f"{it.submission:<{width}}  {cells}")
    return "\n".join(lines)
