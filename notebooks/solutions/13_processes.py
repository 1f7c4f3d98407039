"""Divided by what counts in all processes, and times their number, which the mean takes away."""


def answer(losses, targets, add_up, processes):
    return losses.sum() * processes / add_up((targets != -100).sum())
