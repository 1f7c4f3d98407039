"""Blocks are consecutive threads, and so are the warps of a block and the lanes of a warp."""


def answer(i, threads):
    return i // threads, i % threads // 32, i % 32
