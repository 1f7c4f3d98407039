"""q, k, v and y for backward, and two statistics of a row: its scores come again."""


def answer(tokens, cols, itemsize):
    return 4 * tokens * cols * itemsize + 8 * tokens
