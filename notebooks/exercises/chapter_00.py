"""Judges of chapter 0: start."""

import torch

from lab.course.exercise import Claim, Near, Speed, answer, kernel

SIZES = (1, 255, 256, 257, 1000)


@kernel(lines=10)
def polynomial(attempt):
    """Small whole numbers, so that nothing is rounded."""
    for n in SIZES:
        x = torch.arange(n) % 13 - 6.0
        for a, b, c in [(1.0, 0.0, 0.0), (2.0, -3.0, 0.5)]:
            y = attempt.empty(n)
            attempt(attempt.tensor(x), y, n, a, b, c)
            want = a * x * x + b * x + c
            yield Near(y, want.double(), want, f"n = {n}, a, b, c = {a}, {b}, {c}")

    def prepare():
        x = attempt.large(1 << 28)
        y = torch.empty_like(x)
        return lambda: attempt.launch(x, y, x.numel(), 1.0, 2.0, 3.0), 2 * x.nbytes

    yield Speed(prepare, 50)


@kernel(lines=8, bug=True)
def tail(attempt):
    for n in SIZES:
        x, y = torch.arange(n) % 13 - 6.0, attempt.empty(n)
        attempt(attempt.tensor(x), y, n)
        yield Near(y, x.double() ** 2, x * x, f"n = {n}")


@answer
def blocks(given):
    for n, threads in [(256, 256), (257, 256), (1, 32), (1000, 128), (1 << 20, 1024)]:
        wanted, got = -(-n // threads), given(n, threads)
        yield Claim(
            got == wanted,
            f"{n} elements, {threads} threads a block: {wanted} blocks, not {got}",
        )


@answer
def bytes(given):
    yield Claim(
        given == 3 * 4 * 1_000_000,
        f"{given} is not it: which tensors are read, which are written, and how large is each?",
    )


@answer
def break_half(given):
    x = torch.tensor(given).half()
    yield Claim(x.item() == given and x > 0, f"{given} is no positive float16 number")
    yield Claim(bool((x * x).isinf()), f"the square of {given} is {(x * x).item()}, and finite")
    below = (x.view(torch.int16) - 1).view(torch.float16)
    yield Claim(
        bool((below * below).isfinite()),
        f"so is the square of {below.item()}, the number before it: there is a smaller one",
    )
