def answer(m, n, a, b):
    """Sums in float32; n in units of 8, m in units of 16."""
    return 1 << 4 | a << 7 | b << 10 | n // 8 << 17 | m // 16 << 24
