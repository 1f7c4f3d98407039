"""Chooses which of the configurations to run, if not all are to be run.

The cost of a configuration is modelled as a Gaussian process (Rasmussen & Williams, 2006,
chapter 2) over the logarithms of its constants: a plane, because the bytes that a kernel has in
flight are a product of them, and smooth deviations from it. The next to run is the one whose
expected cost minus twice its uncertainty is the least (Srinivas et al., "Gaussian Process
Optimization in the Bandit Setting", 2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lab.tuner.space import Configuration, Space

# For the logarithm of a cost; the values matter little (docs/tune.md).
SLOPE = 0.17  # when a constant is doubled: standard deviation
DEVIATION = 0.17  # from the plane: standard deviation
LENGTH = 1.5  # doublings, over which deviations are alike
NOISE = 0.003  # of a measurement: standard deviation
HOPE = 2.0  # standard deviations subtracted from the expected cost of the next to run

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

    costs: returns the cost of each, relative to the kernel as it stands; infinity for one that
        cannot be used. That counts as the highest cost seen, because its neighbours may be no
        better.
    standing: the constants of the kernel as it stands, which costs 1 and is not run. If one of them
        is None or not among the values, the first to run is the configuration in the middle.
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
    """The known costs at some points, and the expected costs at all of them."""

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
        """The next to run. If several are asked for at once, each is assumed to cost what the model
        expects.
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
    """The base-2 logarithm of each constant, or its place in the list if not all its values are
    positive.
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
