"""Links from findings to traces: buttons in a notebook, and pages that contain the traces."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.checker import findings as told
from lab.checker.page import GRAY

if TYPE_CHECKING:
    from ipywidgets import VBox

    from lab.checker.report import Report

WORD = "step through it"


def is_traceable(row: dict[str, Any]) -> bool:
    """Whether a thread caused the finding, so that its steps can be shown."""
    is_known = isinstance(row["block"], tuple) and row["launch"] == row["launch"]
    return is_known and (bool(told.who(row)) or row["kind"] == "deadlock")


def traced_below(report: Report) -> list[str]:
    """For each finding, the HTML of a link to its trace; "" where there is none."""
    rows = report.findings.to_dict("records")
    return [_folded(report, number) if is_traceable(row) else "" for number, row in enumerate(rows)]


def _folded(report: Report, number: int) -> str:
    try:
        trace = report.trace(number)
    except (RuntimeError, ValueError) as error:
        return f"<div style='color: rgb({GRAY})'>no trace: {html.escape(str(error))}</div>"
    link = "<summary style='cursor: pointer; text-decoration: underline'>"
    return f"<details>{link}{WORD}</summary>{trace._repr_html_()}</details>"


def save(reports: list[Report], path: str | Path) -> Path:
    """Write reports with their traces into an HTML file."""
    path = Path(path)
    title = html.escape(reports[0].headline if reports else "no report")
    bodies = "<hr>".join(report.html(traces=True) for report in reports)
    path.write_text(
        f"<!DOCTYPE html><html lang='en'><meta charset='utf-8'><title>{title}</title>"
        "<style>:root { color-scheme: light dark } body { font-family: sans-serif }</style>"
        f"<body>{bodies}</body></html>"
    )
    return path


def buttons(report: Report) -> VBox | None:
    """For a running notebook: a button for each finding, which shows its trace below."""
    from IPython.core.getipython import get_ipython

    rows = report.findings.to_dict("records")
    those = [number for number, row in enumerate(rows) if is_traceable(row)]
    if not those or report.again is None or not hasattr(get_ipython(), "kernel"):
        return None
    from ipywidgets import Button, HBox, Layout, Output, VBox

    below = Output()

    def button(number: int) -> Button:
        row = rows[number]
        place = f"{Path(row['file']).name}:{row['line']}" if row["file"] else ""
        made = Button(
            description=f"{WORD}: {told.title(row)}, {place}", layout=Layout(width="auto")
        )

        def show(_: Button) -> None:
            from IPython.display import display

            below.clear_output()
            with below:
                made.disabled = True
                try:
                    display(report.trace(number))
                finally:
                    made.disabled = False

        made.on_click(show)
        return made

    row_of = Layout(flex_flow="row wrap")
    return VBox([HBox([button(number) for number in those], layout=row_of), below])
