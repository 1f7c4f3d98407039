"""2^24 and neighbours of it are 2 apart: each product of almost 1 that is added is lost."""

answer = [2.0**12] + [0.999] * 4095, [2.0**12] + [0.999] * 4095
