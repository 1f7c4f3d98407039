"""The configurations to choose from: a value for each constant that is tuned."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Configuration = dict[str, int]  # the value of each constant, by its name
Rule = Callable[..., object]


@dataclass(frozen=True)
class Space:
    """All combinations of some constants' values that a rule allows.

    values: those of each constant, ascending.
    rule: called with the constants that it has as parameters; None allows everything.
    """

    values: dict[str, list[int]]
    rule: Rule | None = None

    @classmethod
    def of(cls, constants: dict[str, Iterable[int]], rule: Rule | None) -> Space:
        """Raises ValueError or TypeError that names the constant or the rule."""
        if not constants:
            raise ValueError(
                "constants: there are none; wanted are lists of values by name, as in"
                " lab.tune(call, kThreads=[64, 128, 256])"
            )
        if rule is not None and not callable(rule):
            raise TypeError(
                f"rule: {rule!r} is of type {type(rule).__name__}; wanted is a function of"
                " constants, such as lambda kThreads, kRows: kThreads * kRows <= 1024"
            )
        space = cls({name: _values(name, given) for name, given in constants.items()}, rule)
        if rule is not None:
            for name in inspect.signature(rule).parameters:
                if name not in constants:
                    raise ValueError(
                        f"rule: it takes {name!r}; the constants are {', '.join(constants)}"
                    )
        return space

    @property
    def size(self) -> int:
        """The number of combinations before the rule applies."""
        return math.prod(map(len, self.values.values()))

    def allows(self, configuration: Configuration) -> bool:
        return self.rule is None or bool(self.rule(**taken_by(self.rule, configuration)))

    def configurations(self) -> list[Configuration]:
        """All configurations that the rule allows."""
        combined = itertools.product(*self.values.values())
        every = (dict(zip(self.values, combination, strict=True)) for combination in combined)
        return [configuration for configuration in every if self.allows(configuration)]


def taken_by(function: Callable, configuration: Configuration) -> Configuration:
    """Those constants that are parameters of the function."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a C function without a signature
        return {}
    return {name: value for name, value in configuration.items() if name in parameters}


def _values(name: str, given: object) -> list[int]:
    wanted = f"wanted is a list of whole numbers, as in {name}=[64, 128, 256]"
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{name}: {given!r} is of type {type(given).__name__}; {wanted}")
    values = list(given)
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name}: {value!r} is of type {type(value).__name__}; {wanted}")
    if not values:
        raise ValueError(f"{name}: the list is empty; {wanted}")
    return sorted(set(values))
