"""What moves at `rate` while the host is busy with one call, divided by what an element needs."""


def answer(call_seconds, bytes_each, rate):
    return call_seconds * rate / bytes_each
