"""No multiple of four floats: where x has a vector, the result has none, and no row is kept."""

answer = 1
