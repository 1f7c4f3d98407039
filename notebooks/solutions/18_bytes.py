"""Apart, the norm writes its result and quantize reads it; fused, it is never in memory."""


def answer(itemsize, residual):
    given = itemsize * (1 + residual)  # x, and the other addend
    kept = itemsize * residual  # the sum of both
    return given + kept + 2 * itemsize + 1, given + kept + 1
