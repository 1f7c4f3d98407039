"""A stage is filled when the one before it is, and when what it held has been multiplied."""


def answer(steps, stages, fetch, multiply):
    filled, done = 0, [0] * stages
    for step in range(steps):
        filled = max(filled, done[step]) + fetch
        done.append(max(done[-1], filled) + multiply)
    return done[-1]
