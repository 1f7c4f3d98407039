"""A weight is in three products, of two operations for a word; attention has seven, by halves."""


def answer(words, weights, layers, length, width):
    return 6 * words * weights + 7 * words * layers * length * width
