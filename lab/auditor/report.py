"""The findings of an audit: rows, as text, HTML and JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

OK, NOTE, FAIL, REFUSED, NOT_RUN = "ok", "note", "FAIL", "refused", "not run"
# Colours for each verdict in both themes, as on the pages of lab.checker.
COLORS = {
    OK: "0, 114, 178",
    NOTE: "150, 110, 0",
    FAIL: "213, 94, 0",
    REFUSED: "128, 128, 128",
    NOT_RUN: "128, 128, 128",
}


@dataclass(frozen=True)
class Row:
    """One trap.

    verdict: "ok"; "FAIL", the op falls into it; "note", worth knowing; "refused", with a clear
    exception; "not run", for the reason in the message. example: the smallest call that shows it.
    line: FILE:NUMBER, if there is one. advice: what to do about a FAIL or a note.
    """

    section: str
    name: str
    verdict: str
    message: str = ""
    example: str = ""
    line: str = ""
    advice: str = ""
    seconds: float = 0.0


class Audit:
    """The rows of an audit; true if the op fell into no trap.

    Attributes:
        what: the op's name.
        rows: one for each trap.
        notes: remarks that apply to all of them.
    """

    def __init__(self, what: str, rows: Iterable[Row], notes: Iterable[str] = ()) -> None:
        self.what, self.rows, self.notes = what, list(rows), list(notes)

    @property
    def ok(self) -> bool:
        return not self.failed

    def __bool__(self) -> bool:
        return self.ok

    @property
    def failed(self) -> list[Row]:
        return [it for it in self.rows if it.verdict == FAIL]

    def row(self, name: str, section: str | None = None) -> Row:
        """The row of a trap by its name; pass `section` if two sections have such a trap."""
        found = [it for it in self.rows if it.name == name and section in (None, it.section)]
        if len(found) != 1:
            known = ", ".join(it.name for it in self.rows)
            raise KeyError(f"{len(found)} rows are named {name!r}; there are {known}")
        return found[0]

    @property
    def headline(self) -> str:
        counts = {v: sum(it.verdict == v for it in self.rows) for v in COLORS}
        said = ", ".join(f"{n} {v}" for v, n in counts.items() if n)
        verdict = "no trap" if self.ok else f"{len(self.failed)} trap{'s' * (len(self.failed) > 1)}"
        return f"audit of {self.what}: {verdict} ({said})"

    def __str__(self) -> str:
        lines = [self.headline, *self.notes]
        section = ""
        for it, message, more in _texts(self.rows):
            if it.section != section:
                section = it.section
                lines += ["", section]
            lines.append(f"  {it.verdict:<8} {it.name:<22} {message}".rstrip())
            lines += [f"           {text}" for text in more]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_pretty_(self, printer: object, cycle: bool) -> None:
        printer.text(str(self))

    def as_dict(self) -> dict:
        """For json.dumps. Runs of the same call differ only in the seconds."""
        return {
            "op": self.what,
            "ok": self.ok,
            "notes": self.notes,
            "rows": [asdict(it) for it in self.rows],
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1)

    @classmethod
    def from_dict(cls, said: dict) -> Audit:
        return cls(said["op"], [Row(**it) for it in said["rows"]], said["notes"])

    def save(self, path: str | Path) -> Path:
        """Write it as an HTML page."""
        path = Path(path)
        path.write_text(
            f"<!doctype html><meta charset='utf-8'><title>{html.escape(self.headline)}</title>"
            "<style>body { font-family: sans-serif; margin: 2em; color: #222; background: #fff }"
            " @media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } }"
            f"</style><h1 style='font-size: 1.3em'>{html.escape(self.what)}</h1>"
            f"{self._repr_html_()}"
        )
        return path

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(self.headline)}</b></p>"]
        parts += [f"<p>{html.escape(it)}</p>" for it in self.notes]
        rows = []
        section = ""
        for it, message, more in _texts(self.rows):
            if it.section != section:
                section = it.section
                rows.append(
                    f"<tr style='background: none'><td colspan='3' style='{_CELL}; padding-top:"
                    f" 0.9em'><b>{html.escape(section)}</b></td></tr>"
                )
            rows.append(_html_row(it, message, more))
        table = f"<table style='border-collapse: collapse; width: 100%'>{''.join(rows)}</table>"
        return f"<div style='max-width: 62em'>{''.join(parts)}{table}</div>"


_CELL = "padding: 0.15em 0.9em 0.15em 0; text-align: left; vertical-align: top; border: none"


def _texts(rows: Iterable[Row]) -> Iterator[tuple[Row, str, list[str]]]:
    """Each row, its message, and the lines below it. Failures on the same line for the same reason
    are listed once: a fault of every call would otherwise fill the page."""
    told: dict[tuple[str, str], str] = {}
    for it in rows:
        message = " ".join(it.message.split())
        if it.verdict not in (FAIL, NOTE):
            yield it, message[:160], []
            continue
        said = [("line", it.line), ("smallest", it.example), ("do", it.advice)]
        first = told.setdefault((it.line, it.advice), it.name) if it.line else it.name
        if first != it.name:
            message, said = f"as in {first}: {it.line}", said[1:2]
        yield it, message, [f"{name}: {text}" for name, text in said if text]


def _html_row(it: Row, message: str, texts: list[str]) -> str:
    color = COLORS[it.verdict]
    loud = it.verdict in (FAIL, NOTE)
    more = "".join(f"<br><span style='opacity: 0.8'>{html.escape(text)}</span>" for text in texts)
    weight = "; font-weight: bold" if loud else ""
    shade = f"rgba({color}, 0.08)" if loud else "none"
    return (
        f"<tr style='background: {shade}'>"
        f"<td style='{_CELL}; border-left: 4px solid rgb({color}); padding-left: 0.6em;"
        f" white-space: nowrap; color: rgb({color});"
        f" color: color-mix(in srgb, rgb({color}) 65%, currentcolor){weight}'>{it.verdict}</td>"
        f"<td style='{_CELL}; white-space: nowrap'>{html.escape(it.name)}</td>"
        f"<td style='{_CELL}; overflow-wrap: anywhere'>{html.escape(message)}{more}"
        "</td></tr>"
    )
