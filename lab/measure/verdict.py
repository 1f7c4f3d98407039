"""Whether a result is right, in words: its error beside PyTorch's own, both against float64."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from lab.measure.error import Error

NONE = 0.1  # mean error, relative to a value, that leaves it no correct digit
FEW = 16.0  # ULP: allowed error of a result that has no other to compare with


class Judged(NamedTuple):
    """A result: what it is of, its error, PyTorch's on the same inputs (None: not known), and the
    spacing of its type's numbers at 1; and the largest value of the truth."""

    what: str
    error: Error
    torch_error: Error | None
    eps: float = 0
    largest: float = 0

    @property
    def digits(self) -> int:
        """Correct decimal digits of all values: 4 for an error of 1e-4 of a value."""
        largest = self.eps * self.error.max_ulp
        return int(-math.log10(largest)) if 0 < largest < 1 else 0


def is_right(ours: Error, torchs: Error) -> bool:
    """Whether the largest error is about PyTorch's.

    It may be three times PyTorch's, which may be small by luck for one draw of inputs; or in ULP
    twice PyTorch's plus half a unit, because PyTorch's may be 0. A float64 result, for which
    PyTorch's is the truth, may be a few units off.
    """
    if torchs.max == 0 and ours.max_ulp <= FEW:
        return True
    return ours.max <= 3 * torchs.max or ours.max_ulp <= 2 * torchs.max_ulp + 0.5


def in_words(it: Judged) -> str:
    """One sentence: right or wrong, and why."""
    error = f"the largest error is {spoken(it.error.max_ulp)} ULP"
    if it.torch_error is None:
        if it.error.max_ulp <= FEW:
            return f"{it.what}: right; {error}."
        if it.error.max <= FEW * it.eps * it.largest:
            return f"{it.what}: right; {error}, near 0, and small beside the largest value."
        if it.error.max == float("inf") or it.eps * it.error.mean_ulp > NONE:
            return f"{it.what}: wrong; {error}."
        if digits := it.digits:
            return f"{it.what}: right to {digits} digit{'s' * (digits > 1)}; {error}."
        return (
            f"{it.what}: wrong in places; {error}. A call named 'torch' shows PyTorch's beside it."
        )
    beside = f"{error}, PyTorch's is {spoken(it.torch_error.max_ulp)}"
    if is_right(it.error, it.torch_error):
        return f"{it.what}: right; {beside}."
    return f"{it.what}: wrong; {beside}."


def of_all(results: Iterable[Judged]) -> str:
    """A line for each wrong result, or one sentence if all are right; "" without results."""
    results = list(results)
    wrong = [it for it in results if it.torch_error and not is_right(it.error, it.torch_error)]
    if len(results) == 1 or not all(it.torch_error for it in results):
        return "\n".join(map(in_words, results))
    if not wrong:
        return f"All {len(results)} results are right: their errors are about PyTorch's." * bool(
            results
        )
    return "\n".join(map(in_words, wrong))


def spoken(ulp: float) -> str:
    """An error with three digits, without an exponent if it is large: 0.5, 4,530."""
    return f"{ulp:,.0f}" if 1000 <= ulp < 1e6 else f"{ulp:.3g}"
