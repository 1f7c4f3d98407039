"""A trace as text: a time line, and the values at a line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.tracer.trace import Trace

WARPS = 6  # columns of a time line
STEPS = 40  # rows
WARP = 32


def overview(trace: Trace, first: int = 0, steps: int = STEPS) -> str:
    """What each warp runs, step by step, beside the source's lines."""
    x, y, z = trace.threads_per_block
    warps = -(-x * y * z // WARP) * len(trace.blocks)
    shown = range(min(warps, WARPS))
    rows = [["step", *(f"warp {warp}" for warp in shown)]]
    last = min(first + steps, trace.steps)
    for step in range(first, last):
        rows.append([str(trace.number_of(step)), *(_doing(trace, warp, step) for warp in shown)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        f"{trace.kernel}: block{'s' * (len(trace.blocks) > 1)}"
        f" {', '.join(map(str, trace.blocks))} of {trace.grid}, {x * y * z} threads,"
        f" steps {spans(trace)}" + (", the rest is left out" if trace.is_cut else "")
    ]
    lines += [
        "  ".join(it.ljust(n) for it, n in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if last < trace.steps:
        lines.append(f"... {trace.steps - last} more steps")
    if warps > WARPS:
        lines.append(f"... {warps - WARPS} more warps")
    lines += [f"{it['title']}: {it['message']}" for it in trace.findings()]
    return "\n".join(lines)


def spans(trace: Trace) -> str:
    """Which of a block's own steps are recorded: "0 to 99 and 250 to 299"."""
    numbers = sorted(set(trace.tables["rounds"]["number"].tolist())) or [0]
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " and ".join(f"{first} to {last}" for first, last in parts)


def _doing(trace: Trace, warp: int, step: int) -> str:
    """The lines that a warp runs in a step, with their lanes where it is not all of them."""
    groups = trace.groups(warp, step)
    said = [
        f"{line}{'' if count == most else f' ({lanes})'}" for line, lanes, count, most in groups
    ]
    said += [f"waits: {word}" for word in trace.waits(warp, step)]
    return "; ".join(said) or "-"


def at_line(trace: Trace, line: int, threads: list[int], most: int = 20) -> str:
    """The values of threads after each of the first steps in which they run a line."""
    lines = []
    for thread in threads:
        steps = trace.runs_of(line, thread)
        if not steps:
            lines.append(f"thread {thread} does not run line {line} in what was recorded")
        for step in steps[:most]:
            values = ", ".join(
                f"{name} = {_shown(it)}" for name, it in trace.values(thread, step).items()
            )
            lines.append(f"thread {thread}, step {trace.number_of(step)}, line {line}: {values}")
        if len(steps) > most:
            lines.append(f"thread {thread} runs it {len(steps) - most} more times")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_shown(it)}" for name, it in value.items()) + "}"
    return str(value)


def short(word: str) -> str:
    """A place at which threads wait, without its file's folders."""
    what, _, place = word.partition(" at ")
    return f"{what} at {Path(place).name}" if place else what
