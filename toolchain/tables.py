"""Tables of strings, whose first row is the head, and lines of text with a style each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Rows = Sequence[Sequence[str]]


def text_table(rows: Rows) -> str:
    """Columns of text, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def html_table(rows: Rows, css_class: str = "") -> str:
    from html import escape  # late: it takes a fifth of jitload's import

    head, *body = ([escape(cell) for cell in row] for row in rows)
    lines = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in body)
    begin = f"<table class='{css_class}'>" if css_class else "<table>"
    return (
        f"{begin}<thead><tr><th>{'</th><th>'.join(head)}</th></tr></thead>"
        f"<tbody>{lines}</tbody></table>"
    )


_LOOKS = {
    "head": "font-weight:bold",
    "place": "opacity:0.6",
    "added": "background:rgba(46,160,67,0.25)",
    "removed": "background:rgba(248,81,73,0.25)",
    "same": "",
}


def html_lines(lines: Iterable[tuple[str, str]]) -> str:
    """Lines of a diff as HTML, from pairs of a kind and a line."""
    from html import escape

    shown = (f'<div style="{_LOOKS[kind]}">{escape(it) or "&nbsp;"}</div>' for kind, it in lines)
    look = "margin:0;line-height:1.3;font-size:var(--jp-code-font-size,13px)"
    return f'<pre style="{look}">{"".join(shown) or "no difference"}</pre>'
