"""Each element of k and of v is multiplied and added once for each row of q that reads it."""


def answer(group, queries, itemsize):
    return 2 * group * queries / itemsize
