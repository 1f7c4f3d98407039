"""Write docs/ptx.csv, every instruction of PTX that the simulator knows, and docs/ptx.md's totals.

.venv/bin/python -m docs.programs.ptx
"""

from __future__ import annotations

import textwrap

from docs.programs.page import Part, table, write_csv
from simulator.ptx.instructions import FAMILIES, SPECIAL_REGISTERS

PART = Part("ptx.md", "docs.programs.ptx")
CSV = "ptx.csv"
WIDTH = 100  # characters of a line of registers


def main() -> None:
    names = [family.__doc__.strip().rstrip(".") for family in FAMILIES]
    counts = [len(family.RULES) for family in FAMILIES]
    pairs = zip(names, FAMILIES, strict=True)
    write_csv(CSV, ["family", "instruction"], [[n, r.shown] for n, f in pairs for r in f.RULES])
    registers = textwrap.fill(" ".join(f"%{name}" for name in sorted(SPECIAL_REGISTERS)), WIDTH)
    totals = table(
        ["family", "patterns"], [*zip(names, counts, strict=True), ["all", sum(counts)]], "lr"
    )
    PART.write(f"{totals}\n\nSpecial registers:\n\n```\n{registers}\n```")


if __name__ == "__main__":
    main()
