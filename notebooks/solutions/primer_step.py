"""Thread 31 is the only one of warp 0 whose neighbour is in warp 1, which is a step behind."""

answer = 31, 32
