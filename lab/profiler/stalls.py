"""Why a warp does not issue: ncu's stall reasons, in words.

The names are those of its source page; the profiling guide explains each:
https://docs.nvidia.com/nsight-compute/ProfilingGuide/#warp-stall-reasons
"""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """what: in a word or two, for a column. why: what a warp waits for, and what may help."""

    what: str
    why: str


REASONS = {
    "long_sb": Reason(
        "global memory",
        "waits for data of global or local memory: load more at once, and earlier; touch fewer"
        " sectors; keep in shared memory what is read again",
    ),
    "short_sb": Reason(
        "shared memory",
        "waits for data of shared memory, or a special function such as exp: avoid bank conflicts",
    ),
    "barrier": Reason(
        "barrier",
        "waits for the other warps of its block at __syncthreads: fewer barriers, smaller blocks,"
        " evener work",
    ),
    "mio": Reason(
        "queue of shared memory",
        "the queue of shared memory and special functions is full: fewer and wider accesses",
    ),
    "lg": Reason(
        "queue of global memory",
        "the queue of global memory is full: fewer and wider loads and stores",
    ),
    "tex": Reason("queue of textures", "the queue of texture instructions is full"),
    "math": Reason(
        "arithmetic unit",
        "the unit for this arithmetic is busy: that is its peak, or use another kind of"
        " instruction",
    ),
    "wait": Reason("fixed latency", "waits the few cycles that the instruction before takes"),
    "not_selected": Reason("another warp's turn", "ready, while another warp issues: no problem"),
    "selected": Reason("issues", "issues its instruction: no stall"),
    "no_inst": Reason(
        "instruction fetch",
        "waits for its next instruction: code too large for the instruction cache, or a jump",
    ),
    "imc": Reason("constant cache", "waits for a constant that is not in its cache"),
    "branch_resolve": Reason("branch", "waits for the target of a branch"),
    "membar": Reason("memory fence", "waits at a fence for its writes: fewer __threadfence"),
    "drain": Reason("writes at the end", "has ended, and waits for its writes to be done"),
    "dispatch": Reason("dispatch", "the dispatcher holds it back, for want of a resource"),
    "sleeping": Reason("sleep", "sleeps: __nanosleep, or it has ended"),
    "misc": Reason("other", "other reasons"),
    "gmma": Reason("tensor cores", "waits for wgmma to end: that is the tensor cores' pace"),
    "warpgroup_arrive": Reason("warpgroup", "waits for the other warps of its warpgroup"),
}
_ALIASES = {
    "branch_resolving": "branch_resolve",
    "no_instructions": "no_inst",
    "sleep": "sleeping",
}
NO_STALL = ("selected", "not_selected")


def reason(column: str) -> str | None:
    """The key in REASONS of a column of the source page, as "stall_long_sb"; None for others."""
    if not column.startswith("stall_") or "not_issued" in column or "(" in column:
        return None
    name = column.removeprefix("stall_")
    return _ALIASES.get(name, name)


def what(key: str) -> str:
    return REASONS[key].what if key in REASONS else key.replace("_", " ")


def why(key: str) -> str:
    return REASONS[key].why if key in REASONS else ""
