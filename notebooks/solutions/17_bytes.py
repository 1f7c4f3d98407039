"""A score for each row and key; and four tensors of a number for each row and column."""


def answer(tokens, cols, itemsize):
    return 4 * tokens**2, 4 * tokens * cols * itemsize
