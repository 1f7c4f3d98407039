"""Whether the results of a configuration are right."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lab.measure.case import Results, tensors_in
from lab.measure.error import absolute_error, summarize

ROUNDINGS = 16  # by which results without a known truth may differ

Truth = Callable[[], Results] | Results | None


class Judge:
    """Holds the results of one call against the truth.

    With a truth in float64, a configuration's largest error may be twice that of the kernel as it
    stands plus half a unit in the last place. Without a truth, results are compared with those of
    the kernel as it stands and may differ by ROUNDINGS roundings of the largest value, because sums
    may be added in another order.
    """

    def __init__(self, name: str, results: Results, truth: Truth) -> None:
        results = _checked(name, results)
        self._known = truth is not None
        given = truth() if callable(truth) else truth
        self._truth = _checked("truth", results if given is None else given)
        _check_alike(f"call {name!r}", results, self._truth)
        own = summarize(results, self._truth)
        self._allowed = 2 * own.max_ulp + 0.5
        if self._known and own.max_ulp == float("inf"):
            raise ValueError(
                f"truth: the kernel as it stands is infinitely far from that of call {name!r}"
            )

    def wrong(self, results: Results) -> str:
        """What is wrong with the results of a configuration; "" for nothing."""
        results = _checked("call", results)
        try:
            _check_alike("call", results, self._truth)
        except ValueError as error:
            return str(error)
        if self._known:
            error = summarize(results, self._truth).max_ulp
            return "" if error <= self._allowed else f"wrong: {error:.3g} ULP off"
        for result, true in zip(results, self._truth, strict=True):
            limit = 0.0
            if result.is_floating_point() and result.numel():
                finite = true.double().abs().nan_to_num_(0, 0, 0)
                limit = ROUNDINGS * torch.finfo(result.dtype).eps * finite.max().item()
            error = absolute_error(result, true).max().item() if result.numel() else 0.0
            if error > limit:
                return f"wrong: {error:.3g} off; {limit:.3g} is allowed"
        return ""


def _checked(what: str, results: object) -> tuple[Tensor, ...]:
    listed = tensors_in(results) if isinstance(results, Tensor | tuple | list) else (results,)
    for each in listed:
        if not isinstance(each, Tensor):
            raise TypeError(
                f"{what}: it returns {_told(each)}; wanted is the tensor that the kernel wrote,"
                " or a tuple of them, as in: def call(): mine.k[grid, block](x, y, n); return y"
            )
    return tuple(each.detach() for each in listed)


def _told(result: object) -> str:
    return "nothing" if result is None else f"a value of type {type(result).__name__}"


def _check_alike(what: str, results: tuple[Tensor, ...], truth: tuple[Tensor, ...]) -> None:
    shapes, wanted = ([tuple(each.shape) for each in them] for them in (results, truth))
    if shapes != wanted:
        raise ValueError(f"{what}: its results have the shapes {shapes}; wanted is {wanted}")
