"""Step `step` needs the stage of step - stages: that one has to be read, and all before it."""


def answer(step, stages):
    return max(step - stages + 1, 0)
