"""Judges of chapter 3: reductions."""

import math

import torch

from lab.course.exercise import Claim, Near, Speed, answer, kernel

SHAPES = ((1, 1), (3, 31), (9, 32), (8, 33), (17, 1000))


def generator():
    return torch.Generator().manual_seed(0)


@kernel(lines=16)
def row_max(attempt):
    """The largest of each row, also where all are negative or the row is shorter than a warp."""
    for rows, cols in SHAPES:
        x = torch.randn(rows, cols, generator=generator()) - 5
        y = attempt.empty(rows)
        attempt(attempt.tensor(x), y, rows, cols)
        yield Near(y, x.double().amax(-1), x.amax(-1), f"{rows} x {cols}")

    def prepare():
        x = attempt.large(1 << 16, 4096)
        y = x.new_empty(len(x))
        return lambda: attempt.launch(x, y, *x.shape), x.nbytes

    yield Speed(prepare, 60)


@kernel(lines=18)
def half_dot(attempt):
    """float16 in memory, float in registers."""
    for rows, cols in [*SHAPES, (3, 5000)]:
        a, b = torch.rand(2, rows, cols, generator=generator()).half()
        if cols == 5000:  # always rounded to the same side
            a, b = torch.full_like(a, 1.4), torch.ones_like(b)
        y = attempt.empty(rows, dtype=torch.float16)
        attempt(attempt.tensor(a), attempt.tensor(b), y, rows, cols)
        own = (a.float() * b.float()).sum(-1).half()
        yield Near(y, (a.double() * b.double()).sum(-1), own, f"{rows} x {cols}")


@kernel(lines=17, bug=True)
def odd(attempt):
    """Sums of rows of any width up to 1024; whole numbers, so that no order rounds."""
    for rows, cols in [(2, 1), (5, 256), (4, 2), (3, 3), (2, 100), (2, 1023)]:
        x = torch.randint(-99, 99, (rows, cols), generator=generator()).float()
        y = attempt.empty(rows)
        attempt(attempt.tensor(x), y, rows, cols)
        yield Near(y, x.double().sum(-1), x.sum(-1), f"{rows} x {cols}")


@answer
def atomics(given):
    """Seconds that the atomics of the version `tree` take."""
    for n, threads, per_second in [(1 << 28, 256, 1e9), (1000, 512, 5e8), (1 << 20, 1024, 2e9)]:
        wanted = math.ceil(n / threads) / per_second
        got = given(n, threads, per_second)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{n} elements in blocks of {threads}, {per_second:.0e} atomics a second: got {got}."
            " How many atomics are there?",
        )


@answer
def break_order(given):
    """Floats whose sum depends on the order more than on anything else."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dtype == torch.float32 and given.dim() == 1,
        "wanted is a float32 tensor of one dimension",
    )
    yield Claim(given.numel() <= 1000, f"{given.numel()} numbers; wanted are 1000 at most")
    yield Claim(bool(given.isfinite().all()), "all must be finite")
    sums = []
    for values in (given, given.flip(0), given.sort().values):
        total = torch.zeros(())
        for value in values:
            total = total + value
        sums.append(total.item())
    yield Claim(
        max(sums) - min(sums) > 10,
        f"from left to right, from right to left and sorted the sums are {sums}; wanted is a"
        " difference of more than 10",
    )


@answer
def step(given):
    """The trace of `sum_shuffle` on 2^24 and seven ones: (bit, the correctly rounded sum)."""
    bit, total = given
    yield Claim(bit == 4, f"bit {bit}: choose lane 0, and look at `value` after each step of `bit`")
    wanted = float(torch.tensor(2**24 + 7, dtype=torch.float64).float())
    yield Claim(
        total == wanted,
        f"{total}: from 2^24 on floats are 2 apart, and {2**24 + 7} lies between two of them; a"
        " tie goes to the one whose last bit is 0",
    )
