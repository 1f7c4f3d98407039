"""At bit 4 lane 0 adds 1 to 2^24. 16777223 is a tie, and 16777224 has the even significand."""

answer = 4, 16777224.0
