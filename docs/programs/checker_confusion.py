"""What the checker finds in planted bugs and in correct kernels, for docs/checker.md.

    python -m docs.programs.checker_confusion
    python -m docs.programs.checker_confusion tensor scale    # of files with this in their names

Runs what tests/checker/test_checker.py tests, and counts. With words it prints the counts alone.
"""

import sys
from collections import Counter
from importlib import import_module

import torch

import lab
from docs.programs.page import ROOT, Part, table, write_csv

PART = Part("checker.md", "docs.programs.checker_confusion")
CSV = "checker_found.csv"
ORDERS = (0, 1, 2, 3)  # of the threads and the blocks
HEAD = [
    "what is there",
    "kernels",
    *(f"right in order {order}" for order in ORDERS),
    "something else found",
    "nothing found",
]
FOUND, OTHER, NOTHING = range(3)


def verdict(report: lab.Report, kinds: set[str], kind: str = "", line: int = 0) -> int:
    """What a report says, whose findings are of such kinds. kind, line: of the bug, if one is."""
    findings = report.findings
    if findings.empty:
        return NOTHING
    lines = {*findings["line"], *findings["other_line"].dropna()}
    return FOUND if kinds == {kind} and line in lines else OTHER


# For each row of the table, how often each order had each verdict.
Counts = dict[str, Counter[tuple[int, int]]]


def counts(words: list[str]) -> Counts:
    """words: only of files of planted and correct kernels with one of these in their names."""
    sys.path[:0] = [str(ROOT / "tests" / room) for room in ("checker", "helpers")]
    tests = import_module("test_checker")

    def judged(file: str, function: str, order: int, *bug: object) -> int:
        report = tests.checked(getattr(tests.kernels(file), function), thread_order=order)
        return verdict(report, tests.kinds(report), *bug)

    found: Counts = {}

    def wanted(planted_or_correct: tuple) -> bool:
        return not words or any(word in planted_or_correct[0] for word in words)

    planted = filter(wanted, tests.PLANTED)
    for file, function, kind, line in sorted(planted, key=lambda planted: planted[2]):
        what = found.setdefault(kind, Counter())
        what.update((order, judged(file, function, order, kind, line)) for order in ORDERS)
    for file, function in filter(wanted, tests.CORRECT):
        style = "of asynchronous work" if "async" in file else "of varied style"
        what = found.setdefault(f"no bug: kernels {style}", Counter())
        what.update((order, judged(file, function, order)) for order in ORDERS)
    if words:
        return found
    ours = "no bug: our ops, forward and backward, every version and option, 2 types, 2 shapes"
    found[ours] = Counter(
        (0, verdict(tests.checked_case(case, dtype, *shape), set()))
        for case in tests.CASES
        for dtype in (torch.float32, torch.float16)
        for shape in tests.SHAPES
    )
    return found


def row(what: str, found: Counter[tuple[int, int]]) -> list[object]:
    right = NOTHING if what.startswith("no bug") else FOUND
    tried = [sum(found[order, each] for each in (FOUND, OTHER, NOTHING)) for order in ORDERS]
    of_orders = [found[order, right] if tried[order] else "" for order in ORDERS]
    of_verdicts = (sum(found[order, each] for order in ORDERS) for each in (OTHER, NOTHING))
    return [what, tried[0], *of_orders, *of_verdicts]


def main() -> None:
    """Write the CSV, with a line for each kind of bug, and the page's totals."""
    rows = [row(*each) for each in counts(sys.argv[1:]).items()]
    if sys.argv[1:]:
        print(totals(rows))
        return
    write_csv(CSV, HEAD, rows)
    PART.write(totals(rows))


def totals(rows: list[list[object]]) -> str:
    """The kinds of planted bugs added up, and the correct kernels as they are."""
    planted = [row for row in rows if not str(row[0]).startswith("no bug")]
    summed = [
        sum(int(count) for count in column)
        for column in zip(*(row[1:] for row in planted), strict=True)
    ]
    first = [f"planted bugs of {len(planted)} kinds, at their lines", *summed]
    return table(HEAD, [first, *(row for row in rows if row not in planted)], "lr")


if __name__ == "__main__":
    main()
