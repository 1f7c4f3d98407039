"""A product, measured: a line for each implementation, all of which take turns."""

import gc
import itertools
import math
from contextlib import nullcontext

import torch

import jitload
from lab import rivals
from lab.bench import quiet
from lab.bench.agree import agree
from lab.bench.compiling import in_short
from lab.bench.product import Product
from lab.measure import rows
from lab.measure.case import Case
from lab.measure.timing import CPU_CLOCK, TURNS_CLOCK, bytes_moved
from lab.measure.turns import ROUNDS, Player, Step, prepare, take_turns
from lab.rivals.implementation import Implementation

PLAIN = "plain"  # ours with nothing fused, beside those who fuse
# torch.compile has nothing to compile in a call of scaled_dot_product_attention, and of floats of
# one byte it would multiply float32.
WITHOUT_COMPILE = (
    "attention",
    "attention_decode",
    "attention_varlen",
    "matmul_fp8",
    "matmul_block_scaled",
)


def measure_product(
    product: Product,
    conditions: dict[str, object],
    rounds: int = ROUNDS,
    without_compile: bool = False,
) -> list[dict[str, object]]:
    """A line for everybody: time, operations or bytes in a second, and the clock that held.

    What a rival raises is noted in its line, and the others go on; what ours raises is raised.
    Where something is fused, our line has the time of our plain product, too.
    """
    device, labels = jitload.device(), ["ours", *rivals_of(product)]
    if without_compile and "compile" in labels:
        labels.remove("compile")
    cases = product.cases()
    players, results, peaks, failures = _prepared(product, labels, cases, device)
    if product.plain:
        implementation = _implementation(product, "ours")
        alone = _Starting(product.plain.cases(), implementation, (), both=False)
        players[PLAIN] = prepare(alone, device)
    timings, fallen = take_turns(players, device, rounds)
    for label in ("ours", PLAIN):
        if label in fallen:
            raise fallen[label]
    failures |= {label: in_short(failure) for label, failure in fallen.items()}
    size = bytes_moved(product.reads(cases[0]), results)
    lines = []
    for label in labels:
        line = product.columns() | _common(product, label, device)
        if label in failures:
            line["failure"] = failures[label]
        else:
            timing = timings[label]
            line |= rows.time(timing) | rows.held(timing)
            line |= rows.rate(timing, size, conditions.get("copy_gb_per_s"))
            line |= rows.operations(timing, product.operations)
            line["peak_bytes"] = peaks[label]
            line["turn"] = "graph" if players[label].captured else "calls"
            if label == "ours" and product.plain:
                line["plain_us"] = 1e6 * timings[PLAIN].median
        lines.append(line | conditions)
    players.clear()  # their graphs hold memory
    _free()
    return lines


def rivals_of(product: Product) -> list[str]:
    """The names of the rivals that are here and have a kernel for it."""
    names = rivals.rivals_of(product.op)
    if not product.compiled or product.name in WITHOUT_COMPILE:
        names.remove("compile")
    return names


def _prepared(
    product: Product, labels: list[str], cases: list[Case], device: torch.device
) -> tuple[dict[str, Player], tuple[torch.Tensor, ...], dict[str, float], dict[str, str]]:
    """Who takes turns, the results of ours, the memory of each, and of the others what they raised.

    That in short, for an exception would keep the tensors of all that it went through.
    """
    players: dict[str, Player] = {}
    failures: dict[str, str] = {}
    peaks: dict[str, float] = {}
    results: tuple[torch.Tensor, ...] = ()
    both = product.direction == "both"
    for label in labels:
        try:
            starting = _Starting(cases, _implementation(product, label), results, both)
            players[label] = prepare(starting, device)
            results, peaks[label] = starting.results, starting.peak
        except Exception as failure:
            if label == "ours":
                raise
            failures[label] = in_short(failure)
        if label in failures:
            _free()
    return players, results, peaks, failures


class _Starting:
    """Starts an implementation on all cases, and judges the results of the first."""

    def __init__(
        self,
        cases: list[Case],
        each: Implementation,
        expected: tuple[torch.Tensor, ...],
        both: bool,
    ) -> None:
        self._cases, self._each, self._expected, self._both = cases, each, expected, both
        self.peak = math.nan
        self.results: tuple[torch.Tensor, ...] = expected

    def __call__(self) -> Step:
        compiles = self._each.first_call is not nullcontext
        with quiet.compiling() if compiles else nullcontext():
            step, results = self._cases[0].start(self._each, self._both)
        if not self._expected:
            self.results = results
        elif not agree(results, self._expected):
            raise ArithmeticError("its results are not ours")
        del results
        self.peak = peak_bytes(step, self._cases[0].device)
        if len(self._cases) == 1:
            return step
        with self._each.first_call():
            start = Case.both if self._both else Case.step
            steps = [step, *(start(case, self._each) for case in self._cases[1:])]
            for other in steps[1:]:
                other()
        following = itertools.cycle(steps)
        return lambda: next(following)()


def peak_bytes(step: Step, device: torch.device) -> float:
    """The most memory that a call has at a time beside what was there before; NaN on a CPU."""
    if device.type != "cuda":
        return math.nan
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    return torch.cuda.max_memory_allocated(device) - before


def _implementation(product: Product, label: str) -> Implementation:
    if label == "ours":
        return product.ours()[0]
    return rivals.RIVALS[label](product.op)


def _common(product: Product, label: str, device: torch.device) -> dict[str, object]:
    line: dict[str, object] = {
        "clock": TURNS_CLOCK if device.type == "cuda" else CPU_CLOCK,
        "implementation": label,
    }
    if label == "ours":
        line["version"] = product.ours()[1]
    return line


def _free() -> None:
    """Give back what graphs and failed calls held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
