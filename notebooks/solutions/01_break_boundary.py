"""An element has 4 bytes, so a slice that begins at 1, 2 or 3 stands between two boundaries."""


def answer(x):
    return x[1:]
