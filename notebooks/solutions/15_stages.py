"""One stage is multiplied; the copies of the others have the latency to arrive."""

import math


def answer(latency, multiplying):
    return 1 + math.ceil(latency / multiplying)
