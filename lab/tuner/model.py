"""Which of the configurations that can run are run, where that shall not be all of them.

What a configuration costs is modelled as a Gaussian process (Rasmussen & Williams, 2006, chapter 2)
over the logarithms of its constants: a plane, for what a kernel has in flight is a product of
them, and smooth deviations from it. The next to run is the one whose cost may be the least: the
mean that the model expects, less twice its uncertainty (Srinivas et al., "Gaussian Process
Optimization in the Bandit Setting", 2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lab.tuner.space import Configuration, Space

# Of the logarithm of a cost; little hangs on these (docs/tune.md).
SLOPE = 0.17  # when a constant is doubled: standard deviation
DEVIATION = 0.17  # from the plane: standard deviation
LENGTH = 1.5  # doublings, over which deviations are alike
NOISE = 0.003  # of a measurement: standard deviation
HOPE = 2.0  # standard deviations that the next to run may be better than expected

Costs = Callable[[list[Configuration]], list[float]]


def search_among(
    space: Space,
    configurations: Sequence[Configuration],
    runs: int,
    batch: int,
    costs: Costs,
    standing: Configuration | None = None,
) -> None:
    """Call `costs` with up to `batch` of the configurations at a time, until `runs` of them ran.

    costs: returns what each of them costs, relative to the kernel as it stands; infinity for one
        that cannot be used, which is taken for as dear as the dearest: its neighbours may be no
        better.
    standing: the constants of the kernel as it stands, which costs 1 and is not run. Where one of
        them is None or has no place among the others, the first to run is the one in the middle.
    """
    left = [each for each in configurations if each != standing]
    known = [standing] if standing and _has_point(space, standing) else []
    points = _points(space, [*known, *left])
    model = Model(points)
    seen, values = list(range(len(known))), [0.0] * len(known)
    places = list(range(len(known), len(points)))  # in `points`, of those that have not run
    while runs > 0 and places:
        asked = model.next(seen, values, places, min(batch, runs, len(places)))
        runs -= len(asked)
        places = [place for place in places if place not in asked]
        for cost in costs([left[place - len(known)] for place in asked]):
            usable = 0 < cost < math.inf
            values.append(math.log(cost) if usable else max(values, default=0.0))
        seen += asked


class Model:
    """What is known of the costs at some points, and what is expected at all of them."""

    def __init__(self, points: Tensor) -> None:
        self._from_middle = points - points.mean(0)
        apart = torch.cdist(points, points).square()
        plane = 1 + self._from_middle @ self._from_middle.T
        self._covariance = SLOPE**2 * plane + DEVIATION**2 * torch.exp(-apart / (2 * LENGTH**2))

    def expected(self, seen: list[int], values: list[float]) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation at each point, given the values of those seen."""
        variance = self._covariance.diagonal()
        if not seen:
            return torch.zeros_like(variance), variance.sqrt()
        between = self._covariance[:, seen]
        own = between[seen] + NOISE**2 * torch.eye(len(seen), dtype=torch.double)
        factor = torch.linalg.cholesky(own)
        mean = between @ torch.cholesky_solve(torch.tensor(values).double()[:, None], factor)[:, 0]
        told = torch.linalg.solve_triangular(factor, between.T, upper=False).square().sum(0)
        return mean, (variance - told).clamp(min=0).sqrt()

    def next(
        self, seen: list[int], values: list[float], places: list[int], count: int
    ) -> list[int]:
        """Those to run next, several before it is told what they cost: it then believes that each
        costs what it expects.
        """
        seen, values, chosen = [*seen], [*values], []
        for _ in range(count):
            left = [place for place in places if place not in chosen]
            mean, deviation = self.expected(seen, values)
            hoped = mean - HOPE * deviation if seen else self._from_middle.norm(dim=1)
            place = min(left, key=hoped.tolist().__getitem__)
            chosen.append(place)
            seen.append(place)
            values.append(mean[place].item())
        return chosen


def _points(space: Space, configurations: list[Configuration]) -> Tensor:
    """Of each constant the logarithm to base 2, or its place in the list where that has others than
    positive numbers.
    """

    def point(name: str, value: int) -> float:
        values = space.values[name]
        return math.log2(value) if values[0] > 0 else values.index(value)

    rows = [[point(name, each[name]) for name in space.values] for each in configurations]
    return torch.tensor(rows, dtype=torch.double)


def _has_point(space: Space, standing: dict[str, int | None]) -> bool:
    return all(
        standing[name] is not None
        and (standing[name] > 0 if values[0] > 0 else standing[name] in values)
        for name, values in space.values.items()
    )
