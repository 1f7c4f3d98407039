def answer(row, block, blocks):
    """A tile of 128 rows and 4 blocks has 32 rows of 16 bytes, 4 for each quarter of the rows."""
    unit = row // 128 * (blocks // 4) + block // 4
    return unit * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
