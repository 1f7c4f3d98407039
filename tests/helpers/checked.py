"""Kernels of tests/checker/kernels, and reports of lab.check on them."""

from dataclasses import replace
from pathlib import Path

import torch

import jitload
import lab
from jitloader.arguments import recipe_of
from jitloader.handle import handle_for
from toolchain.code import Recipe

FOLDER = Path(__file__).parents[1] / "checker" / "kernels"


def recipe(file: str) -> Recipe:
    # A check compiles with flags of its own after these.
    source = FOLDER / file
    return recipe_of([source], name=f"checker_{source.stem}", target="cpu", flags=["-O0"])


def kernels(file: str) -> jitload.Kernel:
    """With no build but the instrumented one: for checks alone."""
    return handle_for(replace(recipe(file), check=True))


def instrumented(source: Path, trace: bool = False, **options: list) -> jitload.Kernel:
    """With no build but the one for checks, or for traces. options: of `load`."""
    plain = recipe_of([source], target="cpu", **options)
    return handle_for(replace(plain, check=True, trace=trace))


def written(path: Path, text: str, **options: list) -> jitload.Kernel:
    """A source of this text, for checks alone."""
    path.write_text(text)
    return instrumented(path, **options)


def checked(function, n: int = 1000, **options) -> lab.Report:
    x = torch.linspace(-1, 1, n)
    return lab.check(function, x, torch.empty(n), n, **options)


def kinds(report: lab.Report) -> set[str]:
    """Of the findings; `note: ` stands before that of a note."""
    graded = zip(report.findings["severity"], report.findings["kind"], strict=True)
    return {kind if severity == "error" else f"note: {kind}" for severity, kind in graded}
