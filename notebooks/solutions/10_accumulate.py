"""The sums are added, and divided once by all that count."""


def answer(batches, cross_entropy, ignore_index):
    total = sum(cross_entropy(x, target, reduction="sum") for x, target in batches)
    return total / sum((target != ignore_index).sum() for _, target in batches)
