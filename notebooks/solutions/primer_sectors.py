"""A sector holds 8 floats, so lanes that are 8 apart have one each; 32 of them are 1 KiB."""


def answer(lane):
    return 8 * lane
