"""A configuration, and what became of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from lab.tuner.space import Configuration


@dataclass(eq=False)  # each is itself alone
class Candidate:
    """A configuration and its results.

    constants: {} for the kernel as it stands.
    refused: why it cannot be used; "" if it can.
    registers, spilled, shared: the most that any kernel takes, by ptxas; None without nvcc; for
        predicted configurations, registers only.
    samples: microseconds by call name, one for each round; a single one if predicted.
    requests: of warps, in all calls together, if times are predicted.
    missing: what a prediction lacks to be certain, as keys.
    ratios: by call name, the cost relative to the kernel as it stands.
    """

    constants: Configuration
    refused: str = ""
    registers: int | None = None
    spilled: int | None = None
    shared: int | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)
    requests: int = 0
    missing: dict[str, None] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """The geometric mean of the ratios; infinity for one that cannot be used."""
        return self.cost_of(self.ratios)

    def cost_of(self, calls: Iterable[str]) -> float:
        """The same for some of the calls."""
        ratios = [self.ratios[call] for call in calls if call in self.ratios]
        return statistics.geometric_mean(ratios) if ratios and not self.refused else math.inf

    @property
    def rank(self) -> tuple[float, int]:
        """Ascending: the best has the least."""
        return self.cost, self.requests

    def median(self, call: str) -> float:
        """The median cost of a call; NaN if it did not run."""
        return statistics.median(self.samples[call]) if self.samples.get(call) else math.nan

    def spread(self, call: str) -> float:
        """The interquartile range of its rounds; 0 of a single one."""
        taken = self.samples.get(call, [])
        if len(taken) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(taken, n=4, method="inclusive")
        return upper - lower

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.constants.items()) or "as it is"
