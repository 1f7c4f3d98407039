"""A diff of two listings as HTML for a notebook."""

from __future__ import annotations

import html
from itertools import groupby
from typing import TYPE_CHECKING

from toolchain.listing_html import cells_of, heading, instruction, legend, style

if TYPE_CHECKING:
    from toolchain.listing_diff import Change, ListingDiff

CLASSES = {"+": "plus", "-": "minus"}


def page(diff: ListingDiff) -> str:
    """The headline, and each function that differs."""
    if diff.note:
        return f"<p>{html.escape(diff.note)}</p>"
    code = (it for change in diff for side in change if side for it in side.code)
    parts = [style(), f"<p><b>{html.escape(diff.headline)}</b></p>", legend(code)]
    return "".join([*parts, *(_change(diff, change) for change in diff)])


def _change(diff: ListingDiff, change: Change) -> str:
    cells = []
    runs = groupby(
        change.steps(),
        lambda it: (it.mark, it.instruction and diff.code_of(it.mark).place(it.instruction)),
    )
    for (mark, place), steps in runs:
        if mark == "⋮":
            cells.append("<div class='gap'>⋮</div>")
            continue
        source = diff.code_of(mark).text(place) if place else ""
        lines = (_line(mark, instruction(step.instruction)) for step in steps)
        cells += cells_of(place, source, lines, tinted=False)
    below = f"<div style='opacity: 0.75'>{html.escape(change.moved)}</div>"
    return f"{heading(change.title)}{below}<div class='kp-code'>{''.join(cells)}</div>"


def _line(mark: str, text: str) -> str:
    kind = CLASSES.get(mark)
    line = f"{mark} {text}"
    return f"<span class='{kind}'>{line}</span>" if kind else line
