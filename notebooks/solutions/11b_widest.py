"""Each block has its part of the shared memory, of which the system takes 1 KiB."""


def answer(itemsize, blocks, cluster):
    of_block = (228 << 10) // blocks - 1024
    return of_block // 16 * 16 * cluster // itemsize
