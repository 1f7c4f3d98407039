"""What a report of `lab.check`, and a prediction, say of a version, as plain data."""

from __future__ import annotations

from lab.checker.report import Report
from lab.predictor.report import Prediction
from lab.watcher.result import Checked, Finding, Predicted


def checked_of(report: Report, what: str) -> Checked:
    """what: see `Checked`."""
    findings = tuple(_finding(row, report) for row in report.findings.to_dict("records"))
    return Checked(findings, report.bytes_fetched, report.bytes_floor, what)


def predicted_of(it: Prediction) -> Predicted:
    times = (1e6 * seconds for seconds in (it.seconds, it.lower, it.upper))
    return Predicted(*times, it.percent_of_copy, it.gpu.title, it.certain)


def _finding(row: dict, report: Report) -> Finding:
    file, line = row["file"], int(row["line"])
    source = report.line(file, line).strip() if file else ""
    return Finding(row["kind"], row["severity"] == "error", file, line, source, row["message"])
