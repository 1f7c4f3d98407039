"""A row of n moves 2 n bytes in and 2 n out, and 8 < 0.01 * 4 n means n > 200."""

answer = 201
