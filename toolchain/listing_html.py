"""A listing as HTML for a notebook: source lines have the colours of their instructions."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from toolchain import opcodes
from toolchain.instructions import Function, Instruction, Place
from toolchain.tables import html_table

if TYPE_CHECKING:
    from toolchain.listing import Listing

# CSS mixtures of Okabe and Ito's palette, in tones that also suit dark pages.
COLORS = {
    "tensor cores": "204, 121, 167",
    "global memory": "40, 140, 210",
    "shared memory": "0, 158, 115",
    "local memory": "230, 90, 20",
    "barriers and branches": "214, 140, 0",
    "warp": "140, 120, 220",
}
GOLDEN = 137.508  # degrees between the hues of neighbouring lines, so that near ones differ

STYLE = """
.kp-code { display: grid; grid-template-columns: max-content minmax(8em, 42%) 1fr;
  max-height: 44em; overflow: auto; margin: 0.4em 0 1.2em; border: 1px solid rgba(128,128,128,.3);
  border-radius: 4px; font-family: var(--jp-code-font-family, monospace);
  font-size: var(--jp-code-font-size, 13px); line-height: 1.4 }
.kp-code > * { padding: 0 0.7em; white-space: pre; overflow: hidden; text-overflow: ellipsis }
.kp-code > .n { text-align: right; opacity: 0.65 }
.kp-code > .c { border-left: 1px solid rgba(128,128,128,.3); overflow: visible }
.kp-code .a { opacity: 0.5 } .kp-code b { font-weight: 600 } .kp-code .l { opacity: 0.7 }
.kp-legend span { margin-right: 1.2em; white-space: nowrap }
.kp-table { border-collapse: collapse; font-size: var(--jp-code-font-size, 13px) }
.kp-table td, .kp-table th { padding: 1px 0.8em 1px 0; text-align: right; border: none }
.kp-table td:first-child, .kp-table th:first-child { text-align: left; font-family: monospace }
"""


def page(listing: Listing) -> str:
    """The functions, one below the other, or a table of them if there are many instructions."""
    if listing.note:
        return f"<p>{html.escape(listing.note)}</p>"
    if listing.is_long:
        table = html_table(listing.summary(), "kp-table")
        return f"{style()}{table}<p>{html.escape(listing.hint)}</p>"
    parts = [style(), legend(it for function in listing for it in function.code)]
    parts += [function_block(listing, function) for function in listing]
    return "".join(parts)


def style(rules: str = "") -> str:
    return f"<style>{STYLE}{rules}</style>"


def legend(code: Iterable[Instruction]) -> str:
    """The meanings of the opcode colours that occur."""
    kinds = {opcodes.kind(it.text) for it in code if not it.is_label}
    shown = "".join(
        f"<span><b style='color: rgb({color})'>\N{BLACK SQUARE}</b> {kind}</span>"
        for kind, color in COLORS.items()
        if kind in kinds
    )
    return f"<div class='kp-legend'>{shown}</div>"


def function_block(listing: Listing, function: Function) -> str:
    cells = []
    for place, run in listing.runs(function):
        cells += cells_of(place, listing.code.text(place) if place else "", map(instruction, run))
    return f"{heading(function.title)}<div class='kp-code'>{''.join(cells)}</div>"


def heading(text: str) -> str:
    name, _, more = text.rpartition(": ")
    return f"<div><code style='background: none'><b>{html.escape(name)}</b></code>: {more}</div>"


def cells_of(place: Place | None, source: str, code: Iterable[str]) -> Iterator[str]:
    """The three cells of a run: place, line of source, instructions."""
    look = f" style='background: {tint(place)}'" if place else ""
    where = html.escape(f"{Path(place.file).name}:{place.line}") if place else ""
    text = html.escape(source.strip())
    yield f"<div class='n'{look}>{where}</div><div{look} title='{html.escape(source.strip())}'>"
    yield f"{text}</div><div class='c'{look}>"
    yield "\n".join(code)
    yield "</div>"


def tint(place: Place) -> str:
    return f"hsla({place.line * GOLDEN % 360:.0f}, 70%, 50%, 0.13)"


def instruction(it: Instruction) -> str:
    """One instruction, its opcode in the colour of its kind."""
    text = html.escape(it.text)
    if it.is_label:
        return f"<span class='l'>{text}{'' if ' ' in it.text else ':'}</span>"
    offset = f"<span class='a'>{it.offset:04x}</span>  " if it.offset is not None else "  "
    color = COLORS.get(opcodes.kind(it.text))
    name = html.escape(opcodes.opcode(it.text))
    if color and name:
        colored = f"<b style='color: rgb({color})'>{name}</b>"
        text = re.sub(re.escape(name), lambda _: colored, text, count=1)
    return offset + text
