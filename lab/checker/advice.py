"""One line for a row of a report's traffic that costs more than it must: why, and how much more."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lab.checker.line_costs import WASTEFUL

SECTOR, BANKS, WORD = 32, 32, 4


def advice(row: dict[str, Any], type_: str) -> str:
    """What is wrong with a row's costliest request; "" if nothing is. type_: an element's."""
    at = [byte for byte in row["example"] if byte is not None]
    shared = row["memory"] == "shared"
    size, cost = row["size"], int(row["worst"])
    least = max(1, -(-len(at) * size // (BANKS * WORD))) if shared else _sectors(at, size)
    if not at or cost <= WASTEFUL * least:
        return ""
    what = "passes" if shared else "sectors"
    saved = f"{cost} {what} where {least} would do"
    if row["access"] == "atomic" and len(set(at)) < len(at):
        together = max(at.count(byte) for byte in set(at))
        return f"{together} lanes change one address and take turns: {saved}"
    steps = {after - before for before, after in pairwise(at)}
    if len(steps) != 1:
        return f"the lanes' addresses are scattered: {saved}"
    (step,) = steps
    if step == size:
        return f"begins {at[0] % SECTOR} bytes past a multiple of {SECTOR}: {saved}"
    stride = f"stride {step // size} over {type_}" if step % size == 0 else f"stride {step} bytes"
    if shared and step % (BANKS * WORD) == 0:
        return f"{stride}, all in one bank: {saved}; pad the row by one element"
    return f"{stride}: {saved}"


def _sectors(at: list[int], size: int) -> int:
    """As few as hold as many different bytes."""
    return max(1, -(-len(set(at)) * size // SECTOR))
