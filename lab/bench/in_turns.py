"""A product, measured: a line for each implementation, all of which take turns."""

import gc
import importlib
import itertools

import torch

import jitload
from lab import rivals
from lab.bench.agree import agree
from lab.bench.compiling import in_short
from lab.bench.products import Product
from lab.measure import arguments, rows
from lab.measure.case import Case
from lab.measure.timing import CPU_CLOCK, TURNS_CLOCK, bytes_moved
from lab.measure.turns import ROUNDS, Player, Step, prepare, take_turns
from lab.rivals.implementation import Implementation, ours

# torch.compile has nothing to compile in a call of scaled_dot_product_attention, and of floats of
# one byte it would multiply float32.
WITHOUT_COMPILE = ("attention", "attention_decode", "matmul_fp8")


def measure_product(
    product: Product, conditions: dict[str, object], rounds: int = ROUNDS
) -> list[dict[str, object]]:
    """A line for everybody: time, operations or bytes in a second, and the clock that held.

    What a rival raises is noted in its line, and the others go on; what ours raises is raised.
    """
    device, labels = jitload.device(), ["ours", *rivals_of(product)]
    cases = product.cases()
    players, results, failures = _prepared(product, labels, cases, device)
    timings, fallen = take_turns(players, device, rounds)
    if "ours" in fallen:
        raise fallen["ours"]
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
            line["turn"] = "graph" if players[label].captured else "calls"
        lines.append(line | conditions)
    players.clear()  # their graphs hold memory
    _free()
    return lines


def rivals_of(product: Product) -> list[str]:
    """The names of the rivals that are here and have a kernel for it."""
    names = rivals.rivals_of(product.op)
    return [name for name in names if name != "compile" or product.name not in WITHOUT_COMPILE]


def _prepared(
    product: Product, labels: list[str], cases: list[Case], device: torch.device
) -> tuple[dict[str, Player], tuple[torch.Tensor, ...], dict[str, str]]:
    """Who takes turns, the results of ours, and of the others what they raised, in short.

    In short, for an exception would keep the tensors of all that it went through.
    """
    players: dict[str, Player] = {}
    failures: dict[str, str] = {}
    results: tuple[torch.Tensor, ...] = ()
    for label in labels:
        try:
            starting = _Starting(product, cases, _implementation(product, label), results)
            players[label] = prepare(starting, device)
            results = starting.results
        except Exception as failure:
            if label == "ours":
                raise
            failures[label] = in_short(failure)
        if label in failures:
            _free()
    return players, results, failures


class _Starting:
    """Starts an implementation on all cases, and judges the results of the first."""

    def __init__(
        self,
        product: Product,
        cases: list[Case],
        each: Implementation,
        expected: tuple[torch.Tensor, ...],
    ) -> None:
        self._both = product.direction == "both"
        self._cases, self._each, self._expected = cases, each, expected
        self.results: tuple[torch.Tensor, ...] = expected

    def __call__(self) -> Step:
        step, results = self._cases[0].start(self._each)
        if not self._expected:
            self.results = results
        elif not agree(results, self._expected):
            raise ArithmeticError("its results are not ours")
        if self._both:  # the step of a case has its forward pass behind it
            step = self._step_of(self._cases[0])
        if len(self._cases) == 1:
            return step
        with self._each.first_call():
            steps = [step, *map(self._step_of, self._cases[1:])]
            for other in steps[1:]:
                other()
        following = itertools.cycle(steps)
        return lambda: next(following)()

    def _step_of(self, case: Case) -> Step:
        return (lambda: case.step(self._each)()) if self._both else case.step(self._each)


def _implementation(product: Product, label: str) -> Implementation:
    if label == "ours":
        return ours(product.op, arguments.all_versions(product.op)[-1])
    return rivals.RIVALS[label](product.op)


def _common(product: Product, label: str, device: torch.device) -> dict[str, object]:
    line: dict[str, object] = {
        "clock": TURNS_CLOCK if device.type == "cuda" else CPU_CLOCK,
        "implementation": label,
    }
    if label == "ours":
        kernel = importlib.import_module(f"kernels.{product.name}").kernel
        line["version"] = f"{arguments.all_versions(product.op)[-1]} {kernel.digest}"
    return line


def _free() -> None:
    """Give back what graphs and failed calls held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
