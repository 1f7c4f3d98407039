"""The fourteen ones are cut off beside 2^26, before the two large products cancel."""

answer = 16, 14
