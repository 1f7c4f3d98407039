"""Text on a version's results, which the panel and the terminal share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lab.measure.timing import SIMULATOR_CLOCK
from lab.measure.verdict import spoken
from lab.watcher.result import Checked, Finding, Measured, Predicted, Result, Use

if TYPE_CHECKING:
    from lab.watcher.follower import State

MANY_ULP = 100  # of a right result: only where it is near zero, for an ULP is small there


def built(result: Result) -> str:
    """How the build of a version ended: "built in 2.1 s"."""
    if result.failure and result.failure.kind == "compile":
        return "does not compile"
    if not result.opened:
        return ""
    seconds = result.opened.seconds
    if result.opened.built:
        return f"built in {seconds:.1f} s"
    return f"opened from the cache in {1e3 * seconds:.0f} ms"


def error(measured: Measured) -> str:
    """The error against float64, beside PyTorch's; "" where there is no truth."""
    if not (measured.error and measured.torch_error):
        return ""
    ours, theirs = measured.error.max_ulp, measured.torch_error.max_ulp
    verdict = "right" if measured.is_right else "wrong"
    near_zero = ""
    if measured.is_right and ours > MANY_ULP:
        near_zero = f", at results near zero: there is {measured.error.max:.2g} the largest error"
    return f"{verdict}: error {spoken(ours)} ULP (PyTorch's {spoken(theirs)}{near_zero})"


def time(measured: Measured) -> str:
    """The time of a call, with its clock where that is not a GPU's; and the part of a copy. ""
    for the simulator's, which says nothing of a GPU's.
    """
    if measured.clock == SIMULATOR_CLOCK:
        return ""
    spoken = duration(measured.time_us)
    if math.isnan(measured.percent_of_copy):
        return f"{spoken} ({measured.clock})"
    disturbed = f" ({measured.disturbed})" if measured.disturbed else ""
    return f"{spoken}, {measured.percent_of_copy:.1f}% of copy{disturbed}"


def duration(us: float) -> str:
    """With its unit."""
    return f"{us:.4g} µs" if us < 1000 else f"{us / 1000:.4g} ms"


def predicted(it: Predicted) -> str:
    """The time on a GPU that is not there, or between which times it is, where that is all."""
    low, high = f"{it.low_us:.3g}", f"{it.high_us:.3g} µs"
    if not it.certain:
        return f"predicted for {it.gpu}: somewhere from {low} to {high}, measure this"
    return (
        f"predicted for {it.gpu}: {it.time_us:.3g} µs (90%: {low} to {high}),"
        f" {it.percent_of_copy:.0f}% of copy"
    )


def traffic(checked: Checked) -> str:
    """Bytes fetched against the floor; "" where a kernel did not come to its end."""
    if not checked.is_whole:
        return ""
    what = f", {checked.what}" if checked.what else ""
    return f"{checked.times_floor:.2f} times the floor of {checked.bytes_floor:,} bytes{what}"


def found(checked: Checked) -> str:
    """How many findings there are."""
    count = len(checked.findings)
    return f"{count or 'no'} finding{'s' if count != 1 else ''}"


def untouched(state: State) -> str:
    """That the edit did not touch the version that is measured; "" where it may have."""
    others = state.untouched_by
    if not others:
        return ""
    where = ", ".join(sorted(state.result.version.edited))
    return (
        f"The edit is in {where}, of version {', '.join(others)}; what is measured and checked"
        f" is {state.measured}, whose own kernels it did not touch."
    )


def finding(it: Finding) -> str:
    """Kind, place and message of a finding, and the line of code."""
    kind = it.kind if it.is_error else f"note: {it.kind}"
    place = f"{it.file}:{it.line}: " if it.file else ""
    lines = [f"{place}{kind}: {it.message}", f"    {it.source}" if it.source else ""]
    return "\n".join(filter(None, lines))


def use(it: Use) -> str:
    """Registers, spills and occupancy of a kernel."""
    occupancy = "" if it.occupancy is None else f", occupancy {it.occupancy:.0%}"
    spilled = f", {it.spilled} bytes spilled" if it.spilled else ""
    return f"{it.kernel}: {it.registers} registers{spilled}{occupancy} of {it.threads} threads"


def summary(result: Result) -> str:
    """All of it in one line, as far as it is known."""
    parts = [result.version.changes, built(result)]
    if result.failure and result.failure.kind != "compile":
        parts.append(result.failure.kind)
    if result.measured:
        parts += [error(result.measured), time(result.measured)]
    if result.checked:
        parts += [traffic(result.checked), found(result.checked)]
    if result.predicted:
        parts.append(predicted(result.predicted))
    return "; ".join(filter(None, parts))
