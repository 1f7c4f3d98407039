"""The second tile has four columns of the row that are left, and then the next row's."""

answer = 8, 4
