"""Once the sum is 2^(bits + 1) products, a product is half of the last bit that is kept."""


def answer(depth, product, bits):
    return min(depth * product, product * 2 ** (bits + 1))
