"""As many as hold all elements, the last one perhaps not full."""


def answer(n, threads):
    return (n + threads - 1) // threads
