"""What is not made faster takes what it took."""


def answer(seconds, factors):
    after = sum(each / factors.get(kind, 1) for kind, each in seconds.items())
    return sum(seconds.values()) / after
