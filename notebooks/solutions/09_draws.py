"""In the time that an element's bytes take, this part of a draw is made."""


def answer(bytes_per_element, bytes_per_second, draws_per_second):
    return bytes_per_second / (bytes_per_element * draws_per_second)
