"""Two operations for each product; each matrix is moved once."""


def answer(rows, units, depth, itemsize):
    elements = rows * depth + units * depth + rows * units
    return 2 * rows * units * depth / (elements * itemsize)
