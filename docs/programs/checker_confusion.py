"""What the checker finds in planted bugs and in correct kernels, for docs/checker.md.

    python -m docs.programs.checker_confusion

Runs what tests/checker/test_checker.py tests, and counts.
"""

import sys
from collections import Counter
from importlib import import_module

import torch

import lab
from docs.programs.page import ROOT, Part, table

PART = Part("checker.md", "docs.programs.checker_confusion")
HEAD = ["what is there", "kernels", "found, at its line", "something else found", "nothing found"]
FOUND, OTHER, NOTHING = range(3)


def verdict(report: lab.Report, kind: str = "", line: int = 0) -> int:
    """Which column a report belongs to. kind, line: of the planted bug, if one is."""
    findings = report.findings
    if findings.empty:
        return NOTHING
    lines = {*findings["line"], *findings["other_line"].dropna()}
    return FOUND if set(findings["kind"]) == {kind} and line in lines else OTHER


def counts() -> dict[str, Counter]:
    """For each row of the table, how many reports belong to each column."""
    sys.path[:0] = [str(ROOT / "tests" / room) for room in ("checker", "helpers")]
    tests = import_module("test_checker")

    found: dict[str, Counter] = {}
    for file, function, kind, line in sorted(tests.PLANTED, key=lambda planted: planted[2]):
        report = tests.checked(getattr(tests.kernels(file), function))
        found.setdefault(kind, Counter())[verdict(report, kind, line)] += 1
    found["no bug: kernels of varied style"] = Counter(
        verdict(tests.checked(getattr(tests.kernels(file), function)))
        for file, function in tests.CORRECT
    )
    ours = "no bug: our ops, forward and backward, every version and option, 2 types, 2 shapes"
    found[ours] = Counter(
        verdict(tests.checked_case(case, dtype, *shape))
        for case in tests.CASES
        for dtype in (torch.float32, torch.float16)
        for shape in tests.SHAPES
    )
    return found


def main() -> None:
    """Write the table."""
    rows = [
        [what, found.total(), *(found[column] for column in (FOUND, OTHER, NOTHING))]
        for what, found in counts().items()
    ]
    PART.write(table(HEAD, rows, "lr"))


if __name__ == "__main__":
    main()
