"""A prediction: the time, how sure it is, and where the time goes."""

from __future__ import annotations

import math
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

from lab.gpus.gpu import Gpu
from lab.predictor import model
from lab.predictor.counts import Counts, Launch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CERTAIN = 1.5  # if the interval spans a larger factor, the answer is: measure it
NORMAL_90 = 1.645
# The standard deviation of the logarithm of measured over predicted, by the mechanism that takes
# the longest. Of the microbenchmarks, and of kernels that nobody fitted: docs/predict.md.
SPREAD = {
    model.DRAM: 0.06,
    model.SCATTERED: 0.25,
    model.BLOCKS: 0.05,
    model.L2: 0.17,
    model.L1: 0.2,
    model.SHARED: 0.12,
    model.CONFLICTS: 0.09,
    model.ISSUE: 0.17,
    model.LATENCY: 0.19,
    model.ATOMICS: 0.12,
    model.ATOMICS_APART: 0.6,
    model.BARRIER: 0.16,
}
OF_OTHERS = 0.12
FIRST = 0.4e-6  # seconds, by which the first microseconds differ: cold code, pages
# Without machine code these mechanisms, the instructions' time, are unknown.
GUESSED = {model.LATENCY: 0.7, model.ISSUE: 0.5, model.SHARED: 0.9, model.ATOMICS: 0.5}
OF_OTHERS_GUESSED = 0.15
# What widens the interval, and the name of the mechanism that is then missing.
WITHOUT_CODE = (
    "machine code, for want of nvcc (pip install 'cuda-toolkit[nvcc,crt,nvvm,cuobjdump,nvdisasm]')"
)
UNCOUNTED = 0.5, "how often loops without an access to memory run"
ASYNCHRONOUS = 0.35, "how far asynchronous copies and tensor cores overlap"
ENDED = 1.0, "what blocks do after what lab.check finds there, where they end"
HOST = 1.0, "how long the host takes to go on after it has waited for the GPU"
ONE_MACHINE = "what a launch costs on that machine (python -m lab.calibrate measures it)"
NOT_MEASURED = 0.15, "the GPU's own microbenchmarks: its constants are published figures"

WHY = {
    model.DRAM: "it moves {dram} of DRAM, at {rate:.0f} GB/s",
    model.SCATTERED: "it asks for a few bytes of each row of DRAM",
    model.L2: "its requests move {l2} between L2 and the multiprocessors",
    model.L1: "its warps' requests touch many lines of 128 bytes each: uncoalesced accesses",
    model.SHARED: "its requests to shared memory take that many passes",
    model.CONFLICTS: "lanes of a warp wait for each other at banks of shared memory",
    model.ATOMICS: "atomics wait for each other at few lines of memory",
    model.ATOMICS_APART: "atomics wait for each other where their lines share a slice of L2",
    model.LATENCY: "its warps wait, {in_flight} in flight on the whole GPU: {wait}",
    model.ISSUE: "it executes {instructions:.3g} instructions of warps",
    model.BARRIER: "its warps meet at barriers",
    model.BLOCKS: "it launches {blocks:,} blocks, faster than a GPU can",
}


class Prediction:
    """How long a call takes on a GPU, predicted.

    seconds: the median. lower, upper: 90% of calls are between. gpu: its constants.
    certain: whether the interval spans no more than a factor of 1.5; else the answer is "measure
        this", and `missing` says for want of what.
    percent_of_copy: the bytes that the call has to move, over the time, in percent of what a copy
        moves on that GPU.
    parts: seconds of each mechanism, of all launches. launches: the `model.Terms` of each.
    """

    def __init__(self, what: str, counts: Counts, gpu: Gpu):
        kernels = ", ".join(dict.fromkeys(it.kernel for it in counts.launches))
        self.what = kernels if what.endswith("<lambda>") else what.rpartition(".")[2]
        self.gpu, self.counts = gpu, counts
        self.launches = model.of_call(counts.launches, gpu)

    @cached_property
    def overhead(self) -> float:
        """Seconds that the launches themselves take."""
        more = max(len(self.launches) - 1, 0)
        return 1e-6 * (self.gpu.launch_us + more * self.gpu.next_launch_us)

    @cached_property
    def seconds(self) -> float:
        """Seconds of all launches in a row; a launch after a wait of the host begins later."""
        at, host, ends = 1e-6 * self.gpu.launch_us, 0.0, [0.0]
        waits = [it for it in self.counts.waits if it[1]]
        for index, terms in enumerate(self.launches):
            host = self._host(host, waits, index, ends)
            more = 1e-6 * self.gpu.next_launch_us if index else 0.0
            at = max(at, host) + more + terms.total
            ends.append(at)
        return max(at, self._host(host, waits, len(self.launches), ends))

    def _host(
        self, host: float, waits: list[tuple[int, int]], made: int, ends: list[float]
    ) -> float:
        """The time at which the host continues after so many launches."""
        after = [ends[over] + 1e-6 * self.gpu.host_wait_us for when, over in waits if when == made]
        return max([host, *after])

    @property
    def waiting(self) -> float:
        """Seconds for which the GPU waits for the host."""
        return max(0.0, self.seconds - self.overhead - sum(it.total for it in self.launches))

    @property
    def _host_waits(self) -> float:
        """Seconds of the host's waits, including those that launches would hide."""
        return 1e-6 * self.gpu.host_wait_us * len({it for it in self.counts.waits if it[1]})

    @cached_property
    def spread(self) -> float:
        """The standard deviation of the time's logarithm."""
        first = math.hypot(FIRST, 1e-6 * self.gpu.launch_spread_us)
        variance = 0.05**2 + (first / self.seconds) ** 2
        for terms, launch in zip(self.launches, self.counts.launches, strict=True):
            of_launch = _spread_of(terms, launch.code is None) ** 2
            of_launch += sum(width**2 for width, _ in _missing(launch))
            variance += of_launch * (terms.total / self.seconds) ** 2
        if self.counts.ended:
            variance += ENDED[0] ** 2
        variance += (HOST[0] * self._host_waits / self.seconds) ** 2
        if not self.gpu.measured:
            variance += NOT_MEASURED[0] ** 2
        return math.sqrt(variance)

    @property
    def lower(self) -> float:
        return self.seconds * math.exp(-NORMAL_90 * self.spread)

    @property
    def upper(self) -> float:
        return self.seconds * math.exp(NORMAL_90 * self.spread)

    @property
    def certain(self) -> bool:
        return self.upper <= CERTAIN * self.lower

    @property
    def missing(self) -> list[str]:
        """What the model lacks; if nothing specific is missing, the dominant mechanism."""
        found = [why for launch in self.counts.launches for _, why in _missing(launch)]
        if self.counts.ended:
            found.append(f"{ENDED[1]} ({', '.join(self.counts.ended)})")
        if HOST[0] * self._host_waits > 0.1 * self.seconds:
            found.append(HOST[1])
        if not self.gpu.measured:
            found.append(NOT_MEASURED[1])
        if 1e-6 * self.gpu.launch_spread_us > 0.1 * self.seconds:
            found.append(ONE_MACHINE)
        if not found and not self.certain:
            found.append(f"an exact model of {self.longest.main}")
        return list(dict.fromkeys(found))

    @property
    def longest(self) -> model.Terms:
        """The terms of the launch that takes the longest."""
        return max(self.launches, key=lambda terms: terms.total)

    @property
    def gb_per_s(self) -> float:
        """Bytes that the call has to move, over the time."""
        return 1e-9 * self.counts.bytes / self.seconds

    @property
    def percent_of_copy(self) -> float:
        return 100 * self.gb_per_s / self.gpu.copy_gb_per_s

    @cached_property
    def parts(self) -> dict[str, float]:
        """Seconds by mechanism: what each would take alone, scaled so that they add up."""
        found = {model.LAUNCH: self.overhead, model.HOST: self.waiting}
        for terms in self.launches:
            first = terms.alone[model.FIRST]
            found[model.FIRST] = found.get(model.FIRST, 0.0) + first
            weights = {n: s**2 for n, s in terms.alone.items() if n != model.FIRST and s > 0}
            total = sum(weights.values())
            for name, weight in weights.items():
                share = weight / total * (terms.total - first)
                found[name] = found.get(name, 0.0) + share
        ordered = sorted(found.items(), key=lambda item: -item[1])
        return {name: seconds for name, seconds in ordered if seconds > 0.005 * self.seconds}

    @property
    def why(self) -> list[str]:
        """Sentences that explain the time of the longest launch."""
        terms = self.longest
        launch = self.counts.launches[self.launches.index(terms)]
        words = {
            "dram": _bytes(terms.dram_bytes),
            "l2": _bytes(terms.l2_bytes),
            "rate": self.gpu.copy_gb_per_s,
            "in_flight": _bytes(terms.in_flight),
            "wait": _longest_wait(terms.waits),
            "instructions": terms.instructions,
            "blocks": launch.blocks,
        }
        said = []
        kept = [n for n in sorted(terms.alone, key=lambda n: -terms.alone[n]) if n != model.FIRST]
        for name in kept[:3]:
            if terms.alone[name] < 0.3 * terms.alone[kept[0]]:
                break
            sentence = WHY.get(name, "it keeps that unit busy").format(**words)
            said.append(f"{name}, {_time(terms.alone[name])}: {sentence}")
        held = f"{terms.resident} block{'s' * (terms.resident != 1)} of a multiprocessor at once"
        waves = f"{terms.waves:.1f} wave{'s' * (terms.waves != 1)}"
        said.append(f"{launch.kernel}: {held} (limit: {terms.limited_by}), {waves}")
        return said

    def __str__(self) -> str:
        measured = "" if self.gpu.measured else ", of published figures, not measured"
        lines = [
            f"{self.what} on {self.gpu.name}, predicted{measured}: {_time(self.seconds)}"
            f" (90%: {_time(self.lower)} to {_time(self.upper)}),"
            f" {self.percent_of_copy:.0f}% of a copy"
        ]
        if not self.certain:
            lines.append(f"Measure this: not known is {'; '.join(self.missing)}.")
        lines += [f"  {sentence}" for sentence in self.why]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from lab.predictor.picture import as_image

        return f"<pre>{escape(str(self))}</pre>{as_image(self.plot())}"

    def plot(self) -> Figure:
        """The roofline with this call on it, and where the time goes."""
        from lab.predictor.picture import plot

        return plot(self)


def _spread_of(terms: model.Terms, guessed: bool) -> float:
    """The spread of a launch: that of its mechanisms, weighted by their share.

    guessed: without machine code.
    """
    weights = {name: seconds**3 for name, seconds in terms.alone.items() if seconds > 0}
    total = sum(weights.values())
    if not total:
        return OF_OTHERS
    spread = sum(w / total * SPREAD.get(name, OF_OTHERS) for name, w in weights.items())
    if not guessed:
        return spread
    more = sum(w / total * GUESSED.get(name, OF_OTHERS_GUESSED) for name, w in weights.items())
    return math.hypot(spread, more)


def _missing(launch: Launch) -> list[tuple[float, str]]:
    """What was not counted in a launch, and how much it may matter."""
    if launch.code is None:
        return [(0.0, WITHOUT_CODE)]
    found = []
    if launch.code.unknown > 0.1:
        found.append((UNCOUNTED[0] * min(1.0, 2 * launch.code.unknown), UNCOUNTED[1]))
    if launch.code.is_asynchronous:
        found.append(ASYNCHRONOUS)
    return found


def _longest_wait(waits: dict[str, float]) -> str:
    total = sum(waits.values())
    if not total:
        return "for nothing that was counted"
    name = max(waits, key=lambda it: waits[it])
    return f"{100 * waits[name] / total:.0f}% of a warp's time is {name}"


def _time(seconds: float) -> str:
    microseconds = 1e6 * seconds
    if microseconds < 1000:
        return f"{microseconds:.3g} µs"
    return f"{microseconds / 1000:.3g} ms"


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
