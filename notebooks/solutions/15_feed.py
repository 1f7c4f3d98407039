"""A fragment of x has 16 x 16 elements of 2 bytes, one of w 8 x 16; each is read once."""


def answer(m, n):
    return m * n * 2 * 16 * 8 * 16 / (m * 512 + n * 256)
