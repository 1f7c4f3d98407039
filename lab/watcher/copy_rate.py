"""How fast this GPU copies, for the percent of a copy of each version."""

import math
from functools import cache

import jitload
from lab.measure.timing import copy_bandwidth


@cache
def copy_gb_per_s() -> float:
    """Measured once in a process; NaN without a GPU."""
    return copy_bandwidth() if jitload.device().type == "cuda" else math.nan
