"""Half of what lies between 1 and its neighbour, 2^-7 above: a tie, which goes to the even one."""

answer = (1.0, 2.0**-8)
