"""Ten ranks further is a hundred layers further: 1000 * 0 + 10 * 1 + 0 = 1000 * 0 + 10 * 0 + 10."""

answer = (0, 1, 0), (0, 0, 10)
