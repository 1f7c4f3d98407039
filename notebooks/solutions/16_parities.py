"""The producer is a phase behind: before the first round its stages count as read."""


def answer(step, stages):
    full = step // stages % 2
    return 1 - full, full
