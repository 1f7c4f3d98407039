"""What a report of `lab.check` says of a version, as plain data."""

from __future__ import annotations

from collections.abc import Iterable

import jitload
from lab.checker.report import Report
from lab.watcher.result import Checked, Finding, Use


def checked_of(report: Report, kernels: Iterable[jitload.Kernel], what: str) -> Checked:
    """kernels: those that ran. what: see `Checked`."""
    return Checked(
        tuple(_finding(row, report) for row in report.findings.to_dict("records")),
        report.bytes_fetched,
        report.bytes_floor,
        tuple(_uses(report, kernels)),
        what,
    )


def _finding(row: dict, report: Report) -> Finding:
    file, line = row["file"], int(row["line"])
    source = report.line(file, line).strip() if file else ""
    return Finding(row["kind"], row["severity"] == "error", file, line, source, row["message"])


def _uses(report: Report, kernels: Iterable[jitload.Kernel]) -> list[Use]:
    """What the kernels that ran take on a GPU, each with the largest block of its launches."""
    threads: dict[str, int] = {}
    for launch in report.launches.to_dict("records"):
        x, y, z = launch["block"]
        name = _plain(launch["kernel"])
        threads[name] = max(threads.get(name, 0), x * y * z)
    return [
        Use(use.kernel, block, use.registers, use.spilled, use.occupancy(block))
        for kernel in kernels
        for use in kernel.resources()
        if (block := threads.get(_plain(use.kernel)))
    ]


def _plain(kernel: str) -> str:
    """A kernel's name without namespaces and template arguments."""
    return kernel.partition("<")[0].rpartition("::")[2]
