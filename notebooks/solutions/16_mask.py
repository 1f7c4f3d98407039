"""Blocks of a row share the tile of a, those of a column the tile of b."""


def answer(height, width, rank):
    row, column = divmod(rank, width)
    of_a = ((1 << width) - 1) << row * width
    of_b = sum(1 << other * width + column for other in range(height))
    return of_a, of_b
