"""In each row a weight serves a multiplication and an addition."""


def answer(rate, bandwidth, size):
    return rate * size / (2 * bandwidth)
