"""2^26 and -2^26 cancel, and 1 is 26 bits behind them."""

answer = [8192, -8192] + [1] * 14, [8192, 8192] + [1] * 14
