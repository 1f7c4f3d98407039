"""The tree leaves one atomic addition for each block, of which the last may be part empty."""

import math


def answer(n, threads, per_second):
    return math.ceil(n / threads) / per_second
