"""Blocks one below the other have the same columns, so they share the tile of b."""


def answer(rows, columns, blocks):
    return 64 * 2 * (rows + columns / blocks)
