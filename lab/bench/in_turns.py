"""Measures a product: a line for each implementation, all of which take turns."""

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

PLAIN = "plain"  # ours with nothing fused, beside rivals that fuse
# torch.compile has nothing to compile in a call of scaled_dot_product_attention, and would multiply
# one-byte floats in float32.
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
    """A line for each implementation: time, operations or bytes a second, and the clock that held.

    An exception of a rival is noted in its line, and the others continue; ours propagates. If the
    product fuses something, our line also has the time of the plain product.
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
    """The names of the installed rivals that have a kernel for the product."""
    names = rivals.rivals_of(product.op)
    if not product.compiled or product.name in WITHOUT_COMPILE:
        names.remove("compile")
    return names


def _prepared(
    product: Product, labels: list[str], cases: list[Case], device: torch.device
) -> tuple[dict[str, Player], tuple[torch.Tensor, ...], dict[str, float], dict[str, str]]:
    """The players, our results, each one's peak memory, and the failures of rivals.

    Failures are kept as text, because an exception would keep the tensors of its frames alive.
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
    """Starts an implementation on all cases, and compares the results of the first."""

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
    """A call's peak memory above what was allocated before; NaN on a CPU."""
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
    """Release the memory that graphs and failed calls held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
