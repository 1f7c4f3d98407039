"""It reads g and x and writes dx, half as much again as the forward pass."""

answer = 3 * 4 * 1_000_000
