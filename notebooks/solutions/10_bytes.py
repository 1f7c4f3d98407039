"""Saved: log_p is not written forward, and not read, nor a gradient written and read, backward."""


def answer(tokens, vocabulary, itemsize):
    return 3 * tokens * vocabulary * itemsize
