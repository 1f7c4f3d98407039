"""The columns that all tables of error and time share."""

import math

from lab.measure.error import Error
from lab.measure.timing import Timing
from lab.predictor.report import Prediction


def in_ulp(error: Error, whose: str = "") -> dict[str, float]:
    """Largest and mean error in units in the last place. whose: prefix of the columns' names."""
    return {f"{whose}max_ulp": error.max_ulp, f"{whose}mean_ulp": error.mean_ulp}


def absolute(error: Error, whose: str = "") -> dict[str, float]:
    """Largest and mean absolute error."""
    return {f"{whose}max_error": error.max, f"{whose}mean_error": error.mean}


def time(timing: Timing | None) -> dict[str, float | str]:
    """Median and interquartile range in microseconds, and the clock; NaN if there is no time."""
    return {
        "time_us": 1e6 * timing.median if timing else math.nan,
        "spread_us": 1e6 * timing.spread if timing else math.nan,
        "clock": timing.clock if timing else "",
    }


def prediction(it: Prediction | None) -> dict[str, float]:
    """The predicted time on a GPU that is not there, in µs, and its 90% interval."""
    return {
        "predicted_us": 1e6 * it.seconds if it else math.nan,
        "predicted_low_us": 1e6 * it.lower if it else math.nan,
        "predicted_high_us": 1e6 * it.upper if it else math.nan,
    }


def held(timing: Timing) -> dict[str, object]:
    """The GPU's clock in MHz during the measurement, NaN if unknown; and what slowed the GPU down:
    throttling, and other processes that used it.
    """
    slowed = [*timing.held.throttles, timing.held.company] if timing.held else []
    return {
        "mhz": timing.held.mhz if timing.held else math.nan,
        "throttled": ", ".join(filter(None, slowed)),
    }


def operations(timing: Timing, count: int) -> dict[str, float]:
    """Multiplications and additions, and their rate in 10^12 per second; NaN if not counted."""
    return {
        "operations": count or math.nan,
        "tflops": 1e-12 * count / timing.median if count else math.nan,
    }


def rate(timing: Timing | None, bytes: int, copy_gb_per_s: float | None) -> dict[str, float]:
    """Bytes, and the rate at which a GPU moved them; NaN for a time that is not a GPU's.

    copy_gb_per_s: the rate of a copy on this GPU; None without one.
    """
    gb_per_s = timing.gb_per_s(bytes) if timing else math.nan
    return {
        "bytes": bytes,
        "gb_per_s": gb_per_s,
        "percent_of_copy": 100 * gb_per_s / (copy_gb_per_s or math.nan),
    }
