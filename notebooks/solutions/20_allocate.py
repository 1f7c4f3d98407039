def answer(accumulators, columns, scales):
    """The smallest of 32, 64, 128, 256 and 512 that is enough."""
    needed = accumulators * columns + scales
    return next((count for count in (32, 64, 128, 256, 512) if count >= needed), None)
