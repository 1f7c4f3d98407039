"""A block of rows needs the tiles that its last row sees."""


def answer(tokens, rows, keys):
    return sum(-(-end // keys) for end in range(rows, tokens + 1, rows))
