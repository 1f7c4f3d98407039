"""Alone, one thing after the other; in ping-pong, the longer of the two is the limit."""


def answer(cols, warpgroups):
    products = 2 * 2 * 64 * 128 * cols / 4096
    softmax = 64 * 128 / 16 + 5 * 64 * 128 / 128
    if warpgroups == 1:
        return products / (products + softmax)
    return products / max(products, softmax)
