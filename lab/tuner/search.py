"""Searches many configurations: Optuna's sampler says which are built and run.

The sampler is the tree-structured Parzen estimator (Bergstra et al., "Algorithms for
Hyper-Parameter Optimization", 2011) in its multivariate form (Falkner et al., 2018): after some
random configurations it takes those that are likely among the good ones and unlikely among the
others. Optuna is maintained, needs nothing but Python and NumPy for it, and lets us ask for several
configurations before we tell what they cost, so that they can be built side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from lab.tuner.space import Configuration, Space

RANDOM = 10  # random configurations before the sampler decides
ASKED = 50  # requests to the sampler for a new one, before another is chosen

Costs = Callable[[list[Configuration]], list[float]]


def all_of(space: Space) -> list[Configuration]:
    """Every configuration. Raises ValueError if the rule allows none."""
    every = space.configurations()
    if not every:
        raise ValueError("rule: it allows none of the configurations")
    return every


def search(
    space: Space,
    runs: int,
    batch: int,
    costs: Costs,
    seed: int = 0,
    standing: Configuration | None = None,
) -> None:
    """Call `costs` with up to `batch` new configurations at a time, until `runs` of them ran.

    costs: returns what each of them costs, relative to the kernel as it stands; infinity for one
        that cannot be used.
    standing: the configuration of the kernel as it stands, which costs 1 and need not run.

    Raises ModuleNotFoundError where Optuna is not installed.
    """
    new = {_key(configuration): configuration for configuration in all_of(space)}
    study = _study(seed, batch)
    if standing and new.pop(_key(standing), None):
        _tell(study, space, None, standing, 1.0)
    while runs > 0 and new:
        asked = []
        for _ in range(min(batch, runs, len(new))):
            trial, configuration = _next(study, space, new)
            del new[_key(configuration)]
            asked.append((trial, configuration))
        runs -= len(asked)
        for (trial, configuration), cost in zip(
            asked, costs([configuration for _, configuration in asked]), strict=True
        ):
            _tell(study, space, trial, configuration, cost)


def _study(seed: int, batch: int) -> Any:
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "lab.tune needs Optuna to search where there are more configurations than runs:"
            " pip install optuna; or give it runs=None, and it tries all of them",
            name=error.name,
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=RANDOM, multivariate=True, constant_liar=batch > 1
    )
    return optuna.create_study(sampler=sampler)


def _distributions(space: Space) -> dict[str, Any]:
    """Each constant as the index of its value in the list, where neighbours are alike."""
    from optuna.distributions import IntDistribution

    return {name: IntDistribution(0, len(values) - 1) for name, values in space.values.items()}


def _next(study: Any, space: Space, new: dict) -> tuple[Any, Configuration]:
    """The sampler's next new configuration; if it repeats known ones, the new one that is nearest
    to the last of them.
    """
    for _ in range(ASKED):
        trial = study.ask(_distributions(space))
        wanted = {name: space.values[name][place] for name, place in trial.params.items()}
        if _key(wanted) in new:
            return trial, wanted
        study.tell(trial, state=_failed())
    nearest = min(new.values(), key=lambda other: _distance(space, wanted, other))
    return None, nearest


def _tell(study: Any, space: Space, trial: Any, configuration: Configuration, cost: float) -> None:
    """Tells Optuna the logarithm of a cost, because ratios of costs matter, not microseconds."""
    value = math.log(cost) if 0 < cost < math.inf else None
    if trial is not None:
        state = {"values": value} if value is not None else {"state": _failed()}
        study.tell(trial, **state)
    elif value is not None:
        from optuna.trial import create_trial

        places = {name: space.values[name].index(it) for name, it in configuration.items()}
        study.add_trial(
            create_trial(params=places, distributions=_distributions(space), value=value)
        )


def _failed() -> Any:
    from optuna.trial import TrialState

    return TrialState.FAIL


def _key(configuration: Configuration) -> tuple[tuple[str, int], ...]:
    return tuple(configuration.items())


def _distance(space: Space, a: Configuration, b: Configuration) -> int:
    """The distance of two configurations, in steps between neighbouring values."""
    return sum(abs(values.index(a[name]) - values.index(b[name])) for name, values in _items(space))


def _items(space: Space) -> Iterator[tuple[str, list[int]]]:
    return iter(space.values.items())
