"""Kernels of tests/checker/kernels, and reports of lab.check on them."""

from pathlib import Path

import torch

import jitload
import lab

FOLDER = Path(__file__).parents[1] / "checker" / "kernels"


def kernels(file: str) -> jitload.Kernel:
    # A check compiles it once more, with flags of its own after these.
    return jitload.load(
        FOLDER / file, name=f"checker_{Path(file).stem}", target="cpu", flags=["-O0"]
    )


def checked(function, n: int = 1000, **options) -> lab.Report:
    x = torch.linspace(-1, 1, n)
    return lab.check(function, x, torch.empty(n), n, **options)


def kinds(report: lab.Report) -> set[str]:
    """Of the findings; `note: ` stands before that of a note."""
    graded = zip(report.findings["severity"], report.findings["kind"], strict=True)
    return {kind if severity == "error" else f"note: {kind}" for severity, kind in graded}
