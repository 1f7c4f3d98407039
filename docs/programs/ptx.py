"""Write docs/ptx.md's list: every instruction of PTX that the simulator knows.

.venv/bin/python -m docs.programs.ptx
"""

from __future__ import annotations

import re
import textwrap

from docs.programs.page import Part, table
from simulator.ptx.instructions import FAMILIES, SPECIAL_REGISTERS

PART = Part("ptx.md", "docs.programs.ptx")


WIDTH = 80  # characters of a line


def lines_of(pattern: str) -> list[str]:
    """A pattern in lines that a page has room for, broken before a dot or a bracket."""
    lines = [""]
    for piece in re.split(r"(?=[.(|])", pattern):
        if len(lines[-1]) + len(piece) > WIDTH:
            lines.append("    ")
        lines[-1] += piece
    return lines


def page() -> str:
    families = [[family.__doc__.strip().rstrip("."), len(family.RULES)] for family in FAMILIES]
    parts = [table(["family", "patterns below"], families, "lr")]
    for family in FAMILIES:
        shown = "\n".join(line for rule in family.RULES for line in lines_of(rule.shown))
        parts.append(f"### {family.__doc__.strip()}\n\n```\n{shown}\n```")
    registers = textwrap.fill(" ".join(f"%{name}" for name in sorted(SPECIAL_REGISTERS)), WIDTH)
    return "\n\n".join([*parts, f"### Special registers\n\n```\n{registers}\n```"])


if __name__ == "__main__":
    PART.write(page())
