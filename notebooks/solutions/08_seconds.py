"""Forward does not read the sum again; backward does not write one gradient and read it to add."""


def answer(layers, elements, itemsize, rate):
    return layers * 3 * elements * itemsize / rate
