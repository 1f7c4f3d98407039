"""Tables of strings, the first row of which is the head."""

from __future__ import annotations

from collections.abc import Sequence

Rows = Sequence[Sequence[str]]


def text_table(rows: Rows) -> str:
    """Columns of text, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def html_table(rows: Rows, css_class: str = "") -> str:
    from html import escape  # late: it costs a fifth of jitload's import

    head, *body = ([escape(cell) for cell in row] for row in rows)
    lines = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in body)
    begin = f"<table class='{css_class}'>" if css_class else "<table>"
    return (
        f"{begin}<thead><tr><th>{'</th><th>'.join(head)}</th></tr></thead>"
        f"<tbody>{lines}</tbody></table>"
    )
