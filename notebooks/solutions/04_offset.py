"""The offset's square is rounded to a part in 2^bits; where that is sigma^2, nothing is left."""


def answer(sigma, bits):
    return sigma * 2 ** (bits / 2)
