"""Every instruction of PTX that the simulator knows, by families.

A family is a module with RULES (simulator.ptx.rules). The order within one counts: the first rule
that matches is taken.
"""

from __future__ import annotations

import difflib

from simulator.ptx.instructions import (
    asynchronous,
    atomics,
    barriers,
    cp_async,
    matrices,
    memory,
    scalar,
    tcgen05,
    warps,
    wgmma,
    wmma,
)
from simulator.ptx.instructions.special_registers import SPECIAL_REGISTERS
from simulator.ptx.rules import Rule

__all__ = ["FAMILIES", "RULES", "SPECIAL_REGISTERS", "known_like"]

FAMILIES = (
    scalar,
    memory,
    atomics,
    warps,
    barriers,
    cp_async,
    asynchronous,
    matrices,
    wmma,
    wgmma,
    tcgen05,
)

# By the first part of their mnemonics.
RULES: dict[str, list[Rule]] = {}
for _family in FAMILIES:
    for _rule in _family.RULES:
        for _first in _rule.firsts:
            RULES.setdefault(_first, []).append(_rule)


def known_like(mnemonic: str) -> str:
    """For a message: the known instructions that begin like this one; "" if there are none."""
    first = mnemonic.split(".")[0]
    near = [first] if first in RULES else difflib.get_close_matches(first, RULES, n=1)
    return " or ".join(rule.shown for rule in RULES[near[0]]) if near else ""
