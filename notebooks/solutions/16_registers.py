"""512 registers for each of 128 threads, less the producer's, for so many consumers."""


def answer(consumers, producer):
    return min(255, (512 - producer) // consumers) // 8 * 8
