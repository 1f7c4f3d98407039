"""The multiprocessor that gets most tiles is the last to end."""


def answer(rows, units, side, processors):
    tiles = -(-rows // side) * -(-units // side)
    most = -(-tiles // processors)
    return tiles / (most * processors)
