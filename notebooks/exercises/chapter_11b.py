"""Judges of chapter 11b: rows that the blocks of a cluster share."""

import torch

import lab
from jitload import LIMITS, SHARED_OF_A_BLOCK
from kernels.layer_norm import layer_norm
from lab.course.exercise import Claim, answer, kernel
from notebooks.exercises.chapter_11 import HOPPER, SHAPES, close, noise, unharmed_softmax


@kernel(lines=38)
def halves(attempt):
    """Also where one half is far above the other, or is nothing but -infinity."""
    for rows, cols in SHAPES[::-1]:
        for what, left, right in [
            ("as they come", 0.0, 0.0),
            ("left 200 higher", 200.0, 0.0),
            ("right 200 higher", 0.0, 200.0),
            ("left masked", -torch.inf, 0.0),
            ("right masked", 0.0, -torch.inf),
        ]:
            x, y = noise(rows, cols), attempt.empty(rows, cols)
            if cols > 1:
                x[:, : cols // 2] += left
                x[:, cols // 2 :] += right
            attempt(attempt.tensor(x), attempt.empty(rows, 2, 2), y, rows, cols)
            yield close(y, x.double().softmax(-1), f"{rows} x {cols}, {what}")


@kernel(lines=38, bug=True)
def ended(attempt):
    """No block reads the shared memory of one that has ended; and right, of course."""
    yield from unharmed_softmax(attempt)


@answer
def widest(given):
    """Columns of a row for which so many blocks fit on a multiprocessor of an H200."""
    for itemsize, blocks, cluster in [(4, 1, 1), (2, 1, 1), (4, 3, 1), (2, 3, 8), (2, 5, 4)]:
        bytes_of_block = LIMITS[HOPPER][2] // blocks - SHARED_OF_A_BLOCK
        wanted = bytes_of_block // 16 * 16 * cluster // itemsize
        got = given(itemsize, blocks, cluster)
        yield Claim(
            got is not ... and got == wanted,
            f"{itemsize} bytes an element, {blocks} on a multiprocessor, {cluster} a row: got"
            f" {got}. How many vectors of 16 bytes fit into what one block may have?",
        )


@answer
def break_width(given):
    """How far from a boundary a row begins that layer_norm's best version reads twice."""
    yield Claim(isinstance(given, int), "wanted is a number of elements")
    yield Claim(0 <= given <= 8, f"{given} elements; wanted are 0 to 8")
    x = noise(1, given + 4096)[:, given:]
    report = lab.check(layer_norm, x, torch.ones(4096), torch.zeros(4096))
    times = report.tensors.set_index("tensor").bytes_fetched["x"] / x.nbytes
    yield Claim(times > 1.9, f"{given} elements: x is read {times:.2f} times")
