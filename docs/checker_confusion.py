"""What the checker finds in planted bugs and in correct kernels, for docs/checker.md.

    python -m docs.checker_confusion

Runs what tests/test_checker.py tests, counts, and writes the table between the markers of the page
anew.
"""

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import torch

import lab

PAGE = Path(__file__).with_name("checker.md")
BEGIN, END = "<!-- python -m docs.checker_confusion writes from here -->", "<!-- to here, found -->"
HEADER = [
    "| what is there | kernels | found, at its line | something else found | nothing found |",
    "| --- | ---: | ---: | ---: | ---: |",
]
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
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    tests = import_module("test_checker")

    table: dict[str, Counter] = {}
    for file, function, kind, line in sorted(tests.PLANTED, key=lambda planted: planted[2]):
        report = tests.checked(getattr(tests.kernels(file), function))
        table.setdefault(kind, Counter())[verdict(report, kind, line)] += 1
    correct = tests.kernels("correct.cu")
    table["no bug: kernels of varied style"] = Counter(
        verdict(tests.checked(getattr(correct, function))) for function in tests.CORRECT
    )
    ours = "no bug: our ops, forward and backward, every version and option, 2 types, 2 shapes"
    table[ours] = Counter(
        verdict(tests.checked_case(case, dtype, *shape))
        for case in tests.CASES
        for dtype in (torch.float32, torch.float16)
        for shape in tests.SHAPES
    )
    return table


def main() -> None:
    """Write the table."""
    lines = [
        f"| {what} | {sum(found.values())} | {found[FOUND]} | {found[OTHER]} | {found[NOTHING]} |"
        for what, found in counts().items()
    ]
    before, rest = PAGE.read_text().split(BEGIN)
    table = "\n".join([*HEADER, *lines])
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
