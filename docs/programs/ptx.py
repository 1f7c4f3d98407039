"""Write docs/ptx.md's list: every instruction of PTX that the simulator knows.

.venv/bin/python -m docs.programs.ptx
"""

from __future__ import annotations

from docs.programs.page import Part, table
from simulator.ptx.instructions import FAMILIES, SPECIAL_REGISTERS

PART = Part("ptx.md", "docs.programs.ptx")


def page() -> str:
    families = [[family.__doc__.strip().rstrip("."), len(family.RULES)] for family in FAMILIES]
    parts = [table(["family", "patterns below"], families, "lr")]
    for family in FAMILIES:
        shown = "\n".join(rule.shown for rule in family.RULES)
        parts.append(f"### {family.__doc__.strip()}\n\n```\n{shown}\n```")
    registers = " ".join(f"%{name}" for name in sorted(SPECIAL_REGISTERS))
    return "\n\n".join([*parts, f"### Special registers\n\n```\n{registers}\n```"])


if __name__ == "__main__":
    PART.write(page())
