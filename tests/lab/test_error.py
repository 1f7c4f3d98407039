"""The error of a result: units in the last place by hand, and by the neighbours of a number."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab.measure.error import absolute_error, summarize, ulp, ulp_error

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INF, NAN = math.inf, math.nan


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("dtype", "truth", "expected"),
    [
        (torch.float64, 1.0, 2.0**-52),
        (torch.float32, 1.0, 2.0**-23),
        (torch.float16, 1.0, 2.0**-10),
        (torch.bfloat16, 1.0, 2.0**-7),
        (torch.float32, -1.5, 2.0**-23),
        (torch.float32, math.nextafter(1.0, 0.0), 2.0**-24),
        (torch.float32, 1000.0, 2.0**-14),
        (torch.bfloat16, 3.14159, 2.0**-6),
        (torch.float32, 0.0, 2.0**-149),
        (torch.float16, 1e-6, 2.0**-24),  # subnormal
        (torch.bfloat16, 0.0, 2.0**-133),
        (torch.float64, 0.0, 2.0**-1074),
        (torch.float16, 65504.0, 32.0),  # the largest
        (torch.float16, 1e9, 32.0),  # beyond it
    ],
)
def test_ulp_by_hand(dtype, truth, expected):
    assert ulp(doubles(truth), dtype).item() == expected


def test_ulp_of_nan_is_nan():
    assert ulp(doubles(NAN), torch.float32).isnan()


@pytest.mark.parametrize("dtype", FLOATS)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_ulp_is_the_distance_to_the_next_number(dtype, value):
    number = doubles(value).to(dtype).abs()
    above = torch.nextafter(number, torch.tensor(INF, dtype=dtype))
    if above.isfinite():
        assert ulp(number.double(), dtype) == above.double() - number.double()


@pytest.mark.parametrize("dtype", FLOATS)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_costs_at_most_half_a_ulp(dtype, value):
    truth = doubles(value)
    assert ulp_error(truth.to(dtype), truth) <= 0.5


@pytest.mark.parametrize("dtype", FLOATS)
@given(value=st.floats(min_value=2.0**-14, max_value=2.0**15), steps=st.integers(1, 5))
def test_neighbours_are_ulps_away(dtype, value, steps):
    truth = result = doubles(value).to(dtype)
    for _ in range(steps):
        result = torch.nextafter(result, torch.tensor(INF, dtype=dtype))
    distance = ulp_error(result, truth.double()).item()
    assert steps <= distance <= 2 * steps  # a ULP doubles at a power of two
    if torch.frexp(result.double())[1] == torch.frexp(truth.double())[1]:
        assert distance == steps


@pytest.mark.parametrize(
    ("result", "truth", "expected"),
    [
        (INF, INF, 0.0),
        (NAN, NAN, 0.0),
        (INF, 1e6, 0.0),  # 1e6 rounds to infinity in float16
        (INF, -1e6, INF),
        (-INF, INF, INF),
        (INF, 1.0, INF),
        (1.0, INF, INF),
        (NAN, 1.0, INF),
        (1.0, NAN, INF),
        (-0.0, 0.0, 0.0),
        (1.5, 1.0, 0.5),
    ],
)
def test_special_values(result, truth, expected):
    result, truth = torch.tensor([result]).half(), doubles(truth)
    assert absolute_error(result, truth).item() == expected
    assert ulp_error(result, truth).item() == (expected and expected * 2.0**10)


def test_another_shape_is_an_error():
    with pytest.raises(ValueError, match=r"result: has shape \(3,\); the truth has \(3, 1\)"):
        absolute_error(torch.zeros(3), torch.zeros(3, 1))


def test_summary_takes_results_together():
    results = [torch.tensor([1.0, 2.0]), torch.tensor([4.0])]
    truths = [doubles(1.0, 2.0 + 2.0**-23), doubles(4.0 + 2.0**-20)]
    error = summarize(results, truths)
    assert error.max == 2.0**-20
    assert error.mean == (2.0**-23 + 2.0**-20) / 3
    assert error.max_ulp == 2.0
    assert error.mean_ulp == 2.5 / 3
