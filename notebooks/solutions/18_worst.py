"""Halfway between 1 and its neighbour: half a step off, of a number that is half a step above 1."""


def answer(fraction):
    return 1 / (2 ** (fraction + 1) + 1)
