"""What is on its way is rate times latency (Little's law); a thread has its share of it."""

import math


def answer(rate, latency, threads):
    return math.ceil(rate * latency / threads / 16)
