"""Judges of the primer: the machine."""

import torch

import lab
from lab.course.exercise import Claim, Near, answer, kernel


@answer
def place(given):
    for i, threads in [(0, 128), (31, 128), (32, 128), (261, 128), (1000, 256), (4095, 1024)]:
        wanted, got = (i // threads, i % threads // 32, i % 32), given(i, threads)
        yield Claim(
            isinstance(got, tuple) and got == wanted,
            f"element {i}, {threads} threads a block: (block, warp, lane) is {wanted}, not {got}",
        )


@answer
def fit(given):
    yield Claim(
        given == 65536 // (48 * 512),
        f"{given} is not it: how many registers does one block need, and how many are there?",
    )


@answer
def sectors(given):
    """Floats of 4 bytes, sectors of 32."""
    places = [given(lane) for lane in range(32)]
    for lane, place in enumerate(places):
        inside = isinstance(place, int) and 0 <= place < 256
        yield Claim(inside, f"lane {lane} reads {place}; wanted is a whole number from 0 to 255")
    touched = len({place * 4 // 32 for place in places})
    yield Claim(touched == 32, f"these floats lie in {touched} sectors: {places}")


@kernel(lines=13, bug=True)
def neighbour(attempt):
    """y[i] = x[i] + x[i + 1] within each 256 elements, of which the last is x[i] alone."""
    for n in (256, 1024):
        x, y = torch.arange(n) % 13 - 6.0, attempt.empty(n)
        attempt(attempt.tensor(x), y, n)
        right = torch.cat([x.view(-1, 256)[:, 1:], torch.zeros(n // 256, 1)], dim=1).flatten()
        yield Near(y, right.double() + x, right + x, f"n = {n}")
    report = lab.check(attempt.launch, *attempt.last, traffic=False)
    yield Claim(report.findings.empty, "the results are right, and it is luck")


@answer
def step(given):
    """The trace without a barrier: (thread, element of `halved`)."""
    thread, element = given
    yield Claim(
        (thread, element) == (31, 32),
        f"thread {thread}, halved[{element}]: the thread that is asked for reads what the other "
        "warp has not yet written",
    )
