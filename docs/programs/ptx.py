"""Write docs/ptx.csv and the totals of docs/ptx.md: what the simulator knows of PTX.

.venv/bin/python -m docs.programs.ptx
"""

from __future__ import annotations

from docs.programs.page import Part, table, write_csv
from simulator.ptx.instructions import FAMILIES, SPECIAL_REGISTERS

PART = Part("ptx.md", "docs.programs.ptx")
CSV = "ptx.csv"


def main() -> None:
    found = {
        family.__doc__.strip().rstrip("."): [rule.shown for rule in family.RULES]
        for family in FAMILIES
    }
    found["Special registers"] = [f"%{name}" for name in sorted(SPECIAL_REGISTERS)]
    write_csv(CSV, ["family", "pattern"], [[n, it] for n, shown in found.items() for it in shown])
    registers = len(found.pop("Special registers"))
    patterns = sum(map(len, found.values()))
    PART.write(
        table(
            ["families", "patterns", "special registers"], [[len(found), patterns, registers]], "r"
        )
    )


if __name__ == "__main__":
    main()
