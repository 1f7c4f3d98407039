"""How far a result lies from the truth: absolutely, and in units in the last place (ULP).

The truth is the reference run in float64 on the same inputs, so what is measured is the error of
the computation alone, not that of rounding its inputs. The truth for a float64 result is itself
rounded to float64, so PyTorch's own error is 0 by definition there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Error:
    """Error over all elements of the results: largest and mean, absolute and in ULP."""

    max: float
    mean: float
    max_ulp: float
    mean_ulp: float


def ulp(truth: Tensor, dtype: torch.dtype) -> Tensor:
    """One unit in the last place of `dtype` at each value of `truth`.

    For a real number t with 2^e <= |t| < 2^(e + 1) that is 2^(e - p + 1), the distance between the
    numbers of `dtype` there, where p is its number of significant bits: float64 53, float32 24,
    float16 11, bfloat16 8. Below the smallest normal number it is the spacing of the subnormal
    numbers, and beyond the largest finite number that of the largest ones. (Goldberg 1991; Muller,
    "On the definition of ulp(x)", 2005.) That of whole numbers is 1.

    truth: float64, any shape. Returns float64 of the same shape, NaN where truth is NaN.
    """
    if not dtype.is_floating_point:
        return torch.ones_like(truth, dtype=torch.float64)
    limits = torch.finfo(dtype)
    magnitude = truth.double().abs().clamp(limits.tiny, limits.max)
    mantissa, _ = torch.frexp(magnitude)  # magnitude = 2 * mantissa * 2^e, 1/2 <= mantissa < 1
    return magnitude / (2 * mantissa) * limits.eps  # 2^e, exactly, times 2^(1 - p)


def absolute_error(result: Tensor, truth: Tensor) -> Tensor:
    """|result - truth| in float64, elementwise.

    It is 0 where both are NaN, and where `result` is the infinity to which the truth rounds in the
    result's type. Any other NaN or infinity is an infinite error.

    Raises ValueError if the shapes differ.
    """
    if result.shape != truth.shape:
        raise ValueError(
            f"result: has shape {tuple(result.shape)}; the truth has {tuple(truth.shape)}"
        )
    error = (result.double() - truth.double()).abs().nan_to_num_(nan=torch.inf, posinf=torch.inf)
    agrees = result.isinf() & (result == truth.to(result.dtype))
    agrees |= result.isnan() & truth.isnan()
    return error.masked_fill_(agrees, 0.0)


def ulp_error(result: Tensor, truth: Tensor) -> Tensor:
    """`absolute_error` in ULP of the result's type at the truth.

    At most 0.5 where the result is correctly rounded.
    """
    error = absolute_error(result, truth)
    return error.div_(ulp(truth, result.dtype).nan_to_num_(nan=1.0))


def summarize(results: Sequence[Tensor], truths: Sequence[Tensor]) -> Error:
    """The error of several results (an op's outputs, or its gradients) as one set of elements."""
    pairs = list(zip(results, truths, strict=True))
    count = sum(truth.numel() for truth in truths)
    absolute = [_largest_and_sum(absolute_error(*pair)) for pair in pairs]
    in_ulp = [_largest_and_sum(ulp_error(*pair)) for pair in pairs]
    return Error(
        max=max(largest for largest, _ in absolute),
        mean=sum(total for _, total in absolute) / count,
        max_ulp=max(largest for largest, _ in in_ulp),
        mean_ulp=sum(total for _, total in in_ulp) / count,
    )


def _largest_and_sum(error: Tensor) -> tuple[float, float]:
    return error.max().item(), error.sum().item()
