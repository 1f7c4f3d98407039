"""A configuration, and what became of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from lab.tuner.space import Configuration


@dataclass(eq=False)  # each is itself alone
class Candidate:
    """A configuration, and what became of it.

    constants: {} for the kernel as it stands.
    refused: why it cannot be used; "" while nothing speaks against it.
    registers, spilled, shared: of the kernel that takes most of each, by ptxas; None
        without nvcc, and of those that are predicted registers alone.
    samples: by the name of a call its microseconds, once for each round; predicted ones once.
    requests: of warps, in all calls together, where times are predicted.
    missing: what a prediction would have to know to be certain, as keys.
    ratios: by the name of a call its cost over that of the kernel as it stands.
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
        """The same of some calls."""
        ratios = [self.ratios[call] for call in calls if call in self.ratios]
        return statistics.geometric_mean(ratios) if ratios and not self.refused else math.inf

    @property
    def rank(self) -> tuple[float, int]:
        """Ascending: the best has the least."""
        return self.cost, self.requests

    def median(self, call: str) -> float:
        """What a call cost; NaN where it did not run."""
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
