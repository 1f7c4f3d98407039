"""What a report of `lab.check` says of a version, as plain data."""

from __future__ import annotations

from lab.checker.report import Report
from lab.watcher.result import Checked, Finding


def checked_of(report: Report, what: str) -> Checked:
    """what: see `Checked`."""
    findings = tuple(_finding(row, report) for row in report.findings.to_dict("records"))
    return Checked(findings, report.bytes_fetched, report.bytes_floor, what)


def _finding(row: dict, report: Report) -> Finding:
    file, line = row["file"], int(row["line"])
    source = report.line(file, line).strip() if file else ""
    return Finding(row["kind"], row["severity"] == "error", file, line, source, row["message"])
