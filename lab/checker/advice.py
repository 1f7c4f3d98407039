"""A line of advice for each costly row of a report's traffic: the cause, and the extra cost.

Rows are ranked by the GPU time that they waste: the wasted work over the rate of the unit that does
it, as if the unit had nothing else to do (lab.predict combines such terms).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lab.checker.line_costs import WASTEFUL
from lab.gpus.gpu import Gpu

SECTOR, BANKS, WORD = 32, 32, 4
LEAST_US = 0.1  # smaller times are not shown


def advice(row: dict[str, Any], type_: str) -> str:
    """What is wrong with a row's costliest request; "" if nothing is. type_: the element type."""
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


def wasted_us(row: dict[str, Any], gpu: Gpu) -> float:
    """The microseconds that a row's needless work keeps the GPU busy: extra sectors occupy L2, bank
    conflicts the shared memory of all multiprocessors, contending atomics their address.
    """
    sectors = SECTOR * (row["sectors"] - row["ideal_sectors"]) / gpu.l2_gb_per_s
    passes = row["bank_conflicts"] / (gpu.multiprocessors * gpu.clock_ghz)
    turns = row["contention"] * gpu.atomic_ns if row["memory"] == "global" else 0.0
    return 1e-3 * (sectors + passes + turns)


def costed(row: dict[str, Any], gpu: Gpu) -> str:
    """A row's advice with the time that it may save."""
    us = row["wasted_us"]
    return (
        f"{row['advice']} (up to {us:.2g} µs on {gpu.title})" if us >= LEAST_US else row["advice"]
    )


def _sectors(at: list[int], size: int) -> int:
    """The fewest sectors that could hold that many different bytes."""
    return max(1, -(-len(set(at)) * size // SECTOR))
