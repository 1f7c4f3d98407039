"""What a block may have, less the other things, in tiles of a and of b."""


def answer(rows, columns, depth, itemsize, others):
    return ((227 << 10) - others) // ((rows + columns) * depth * itemsize)
