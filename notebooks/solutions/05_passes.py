"""Readings and writings of the tensor, over the two of a copy."""

answer = {"unshifted": 3 / 2, "shifted": 4 / 2, "online": 3 / 2, "vector": 2 / 2}
