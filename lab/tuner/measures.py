"""The cost of a configuration: its time on a GPU; on a CPU, the time that lab.predict predicts."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch

import jitload
from lab.gpus import gpu as gpus
from lab.measure.case import Results
from lab.measure.clocks import Held
from lab.measure.timing import take_time
from lab.predictor.counts import counts
from lab.predictor.report import Prediction
from lab.tuner.candidate import Candidate
from lab.tuner.judge import Judge, Truth
from lab.tuner.space import Configuration, taken_by

ROUNDS = 5
TRIES = 2  # rounds in which all take part
NEAR = 1.1  # times the best: configurations slower than this in all rounds so far are dropped
STEADY = 1.03  # times its least: if one took longer, something disturbed the round
SECONDS = 0.02  # seconds of one configuration's calls in a round

Calls = dict[str, Callable[..., Results]]
Step = Callable[[str], None]


class Measure:
    """Runs the configurations of one kernel.

    unit: of a call's cost.
    notice: what a reader should know before it begins; "" for nothing.
    predicted_for: the GPU for which times are predicted; "" if they are measured.
    prunes: whether builds can show that a configuration need not be run.
    held: the GPU's clock in each timing.
    shapes: by the name of a call the classes of shapes that the kernel got, where times are taken.
    """

    unit = ""
    notice = ""
    predicted_for = ""
    prunes = False

    def __init__(self, kernel: jitload.Kernel, calls: Calls, declared: Configuration) -> None:
        self.kernel, self.calls, self.declared = kernel, calls, declared
        self.judges: dict[str, Judge] = {}
        self.held: list[Held | None] = []
        self.shapes: dict[str, list[jitload.ShapeClass]] = {}
        self.standing = Candidate({})

    def recipes(self, constants: Configuration) -> list[Any]:
        """The builds that a configuration needs."""
        raise NotImplementedError

    def begin(self, truths: dict[str, Truth]) -> None:
        """Run the kernel as it stands, as the baseline for results and costs."""
        for name in self.calls:
            self.judges[name] = Judge(name, self._results(self.standing, name), truths[name])
            if self.standing.refused:
                raise ValueError(f"call: {name!r}, the kernel as it is: {self.standing.refused}")

    def look_at(self, candidate: Candidate) -> None:
        """Refuse a candidate whose build uses too many resources."""

    def judge(self, candidate: Candidate) -> None:
        """Run each call once, and refuse the candidate if that raises, or a result is wrong."""
        for name in self.calls:
            try:
                results = self._results(candidate, name)
            except Exception as error:
                _raise_if_broken(error, candidate)
                candidate.refused = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                return
            if wrong := candidate.refused or self.judges[name].wrong(results):
                candidate.refused = wrong
                return

    def cost(self, candidates: list[Candidate], say: Step) -> None:
        """Add samples and ratios to candidates whose results are right."""
        raise NotImplementedError

    def _results(self, candidate: Candidate, name: str) -> Results:
        raise NotImplementedError

    def _compare(self, candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            candidate.ratios = {
                name: _ratio(taken, self.standing.samples[name])
                for name, taken in candidate.samples.items()
                if not candidate.refused
            }


def _ratio(taken: list[float], standing: list[float]) -> float:
    """The median of the rounds' ratios, in which drift cancels out.

    Disturbed rounds, in which another process delayed the GPU's host for example, are left out:
    they would make one of the two slow by chance.
    """
    rounds = zip(taken, standing, strict=False)  # some leave early
    steady = [a / b for a, b in rounds if max(a / min(taken), b / min(standing)) <= STEADY]
    return statistics.median(steady) if steady else min(taken) / min(standing)


class Times(Measure):
    """On a GPU: microseconds, cold L2. Configurations take turns, so that a drifting clock affects
    all of them, and the kernel as it stands takes part in each round.

    spills: whether a configuration may spill more registers to memory than the kernel as it stands.
    threads: gives the threads of a block for a configuration; None if unknown.
    least_occupancy: that a configuration's kernel has to reach with so many threads.
    """

    unit = "µs"
    prunes = True

    def __init__(
        self,
        kernel: jitload.Kernel,
        calls: Calls,
        declared: Configuration,
        spills: bool,
        threads: Callable[[Configuration], int | None],
        least_occupancy: float,
    ) -> None:
        super().__init__(kernel, calls, declared)
        self._spills, self._threads, self._least = spills, threads, least_occupancy

    def recipes(self, constants: Configuration) -> list[Any]:
        return [jitload.variant_of(self.kernel, constants)]

    def begin(self, truths: dict[str, Truth]) -> None:
        self._read_log(self.standing)
        super().begin(truths)
        for name in self.calls:
            with jitload.shapes_of_calls(self.kernel) as self.shapes[name]:
                self._results(self.standing, name)

    def look_at(self, candidate: Candidate) -> None:
        uses = self._read_log(candidate)
        if not self._spills and (candidate.spilled or 0) > (self.standing.spilled or 0):
            candidate.refused = f"spills {candidate.spilled} bytes of registers"
        threads = self._threads(candidate.constants)
        if threads is None or candidate.refused:
            return
        reached = [part for use in uses if (part := use.occupancy(threads)) is not None]
        if reached and max(reached) == 0:
            candidate.refused = f"no kernel of it fits with {threads} threads a block"
        elif reached and max(reached) < self._least:
            candidate.refused = f"its occupancy is {max(reached):.0%} at most"

    def cost(self, candidates: list[Candidate], say: Step) -> None:
        for name in self.calls:
            taking_part = [self.standing, *candidates]
            for candidate in taking_part:
                candidate.samples[name] = []
            for number in range(ROUNDS):
                for candidate in taking_part:
                    say(f"round {number + 1}, {candidate}")
                    self._time(candidate, name)
                if number + 1 >= TRIES:
                    taking_part = self._near(taking_part, name)
        self._compare([self.standing, *candidates])

    def _near(self, candidates: list[Candidate], name: str) -> list[Candidate]:
        """The candidates that may still be the best; always with the kernel as it stands."""
        least = {candidate: min(candidate.samples[name]) for candidate in candidates}
        return [
            candidate
            for candidate in candidates
            if candidate is self.standing or least[candidate] <= NEAR * min(least.values())
        ]

    def _time(self, candidate: Candidate, name: str) -> None:
        taken = taken_by(self.calls[name], self.declared | candidate.constants)
        with self._running(candidate):
            timing = take_time(partial(self.calls[name], **taken), self.kernel.target, SECONDS)
        self.held.append(timing.held)
        candidate.samples[name].append(1e6 * timing.median)

    def _results(self, candidate: Candidate, name: str) -> Results:
        with self._running(candidate):
            call = self.calls[name]
            results = call(**taken_by(call, self.declared | candidate.constants))
        if self.kernel.target == "cuda":
            torch.cuda.synchronize()
        return results

    @contextlib.contextmanager
    def _running(self, candidate: Candidate) -> Iterator[None]:
        if not candidate.constants:
            yield
            return
        with jitload.running_variant(self.kernel, candidate.constants):
            yield

    def _read_log(self, candidate: Candidate) -> list[jitload.Use]:
        uses = jitload.uses(jitload.ensure_with_runtime(*self.recipes(candidate.constants)).log())
        candidate.registers = max((use.registers for use in uses), default=None)
        candidate.spilled = sum(use.spilled for use in uses)
        candidate.shared = max((use.shared for use in uses), default=None)
        return uses


class Predicted(Measure):
    """On a CPU: microseconds that lab.predict predicts for a GPU, with the machine code that nvcc
    makes of each configuration where there is an nvcc. Requests of warps decide between equals.

    gpu: its constants.
    """

    unit = "µs"
    notice = (
        "without a GPU nothing is timed: times are predicted for {}, for which each configuration"
        " is compiled anew and runs under lab.check, some seconds"
    )
    SECONDS = 60.0  # that a call may take under the checker

    def __init__(self, kernel: jitload.Kernel, calls: Calls, declared: Configuration) -> None:
        super().__init__(kernel, calls, declared)
        self.gpu = gpus.load()
        self.predicted_for = self.gpu.title
        self.notice = self.notice.format(self.gpu.title)

    def recipes(self, constants: Configuration) -> list[Any]:
        checked = jitload.variant_of(self.kernel, constants, check=True)
        if jitload.cuda_home() is None:
            return [checked]
        return [checked, jitload.variant_of(self.kernel, constants, for_gpu=True)]

    def begin(self, truths: dict[str, Truth]) -> None:
        with contextlib.suppress(jitload.CompileError, jitload.MissingTool):
            self.kernel.for_gpu()
        super().begin(truths)

    def cost(self, candidates: list[Candidate], say: Step) -> None:
        self._compare([self.standing, *candidates])  # judging them has predicted already

    def _results(self, candidate: Candidate, name: str) -> Results:
        call = self.calls[name]
        taken = taken_by(call, self.declared | candidate.constants)
        returned: list[Results] = []

        def recorded() -> Results:
            returned.append(call(**taken))
            return returned[0]

        recorded.__module__ = call.__module__  # lab.check then finds what the call captures
        with jitload.running_variant(self.kernel, candidate.constants, check=True):
            of = (recorded, (), {}), name, self.SECONDS, self.gpu.multiprocessors
            found = counts(*of, compile=None, skips=False)
        if len(findings := found.report.findings):
            candidate.refused = f"wrong: lab.check finds {', '.join(set(findings['kind']))}"
        prediction = Prediction(name, found, self.gpu)
        candidate.samples[name] = [1e6 * prediction.seconds]
        candidate.missing |= dict.fromkeys(prediction.missing)
        candidate.requests += int(found.report.traffic["requests"].sum())
        registers = [it.registers for it in found.launches if it.registers is not None]
        candidate.registers = max(registers, default=None)
        return returned[0]


def _raise_if_broken(error: Exception, candidate: Candidate) -> None:
    """After an illegal memory access a GPU's context can run nothing more."""
    if not torch.cuda.is_available():
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        error.add_note(f"raised by the configuration {candidate}; this process has lost its GPU")
        raise error from None
