"""For side * side * depth products, tiles of 2 * side * depth elements are read."""


def answer(peak, bandwidth, itemsize):
    side = 1
    while side / itemsize < peak / bandwidth:
        side *= 2
    return side
