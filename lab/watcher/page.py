"""A panel's text on a version beside its picture, as HTML in the notebook's colours."""

from __future__ import annotations

import html

from lab.watcher import text
from lab.watcher.follower import State
from lab.watcher.result import Finding, Result

ERROR, GOOD, FAINT = (
    "var(--jp-error-color1, #c62828)",
    "var(--jp-success-color1, #2e7d32)",
    "var(--jp-ui-font-color2, #888888)",
)
TEXT = "line-height: 1.5"
CODE = (
    "margin: 0.3em 0; padding-left: 0.6em; white-space: pre-wrap; overflow-wrap: anywhere;"
    " font-family: var(--jp-code-font-family, monospace);"
    " font-size: var(--jp-code-font-size, 13px); line-height: 1.4"
)


def status(name: str, state: State) -> str:
    """The current version, a summary of it in a line, and the current activity."""
    result = state.result
    colour, now = _verdict(result) if not state.doing else (FAINT, html.escape(state.doing))
    measured = f", measured: <b>{html.escape(state.measured)}</b>" if state.measured else ""
    return (
        f"<div style='{TEXT}'><b>{html.escape(name)}</b>, version {result.version.number}"
        f" of {result.version.when:%H:%M:%S}{measured}"
        f" <span style='color: {colour}; padding-left: 0.8em'>{now}</span></div>"
        f"<div style='{TEXT}; opacity: 0.85'>{html.escape(text.summary(result))}</div>"
        f"{_untouched(state)}"
    )


def _untouched(state: State) -> str:
    """A note that the edit is in a version that is not measured; "" if it is not so."""
    said = text.untouched(state)
    return f"<div style='{TEXT}; color: {ERROR}'>{html.escape(said)}</div>" if said else ""


def _verdict(result: Result) -> tuple[str, str]:
    """The colour and the word for a version whose results are complete."""
    if result.failure:
        return ERROR, "failed"
    if result.measured and not result.measured.is_right:
        return ERROR, "wrong: its error is far beyond PyTorch's"
    if result.checked and any(finding.is_error for finding in result.checked.findings):
        return ERROR, "the checker finds errors"
    return GOOD, "done"


def details(result: Result) -> str:
    """What went wrong, what the checker found, and what each kernel takes of a GPU."""
    parts = [problem(result.failure.text)] if result.failure else []
    if result.checked:
        parts += map(_finding, result.checked.findings)
    return "".join([*parts, *map(_line, [*map(text.use, result.uses), *result.notes])])


def problem(said: str) -> str:
    """What went wrong, with lines and columns kept."""
    return _code(said, ERROR)


def _finding(finding: Finding) -> str:
    return _code(text.finding(finding), ERROR if finding.is_error else FAINT)


def _code(said: str, colour: str) -> str:
    return f"<pre style='{CODE}; border-left: 3px solid {colour}'>{html.escape(said)}</pre>"


def _line(said: str) -> str:
    return f"<div style='{TEXT}; opacity: 0.85'>{html.escape(said)}</div>"
