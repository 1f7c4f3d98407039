"""Judges of chapter 4: rounding."""

import torch

from lab.course.exercise import Claim, Judgement, Near, answer, kernel
from lab.course.ladder import ladder


def rows_of(rows: int, cols: int, offset: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows + cols)
    return offset + torch.randn(rows, cols, generator=generator)


def moments(attempt) -> Judgement:
    """Mean and variance of rows, on a large offset and with lanes that have nothing to do."""
    for rows, cols in [(4, 32), (5, 64), (3, 1000), (2, 33), (3, 7), (2, 1)]:
        x = rows_of(rows, cols, 256)
        mean, var = attempt.empty(rows), attempt.empty(rows)
        attempt(attempt.tensor(x), mean, var, rows, cols)
        case = f"{rows} x {cols}"
        off = (mean.cpu().double() - x.double().mean(-1)).abs().max().item()
        yield Claim(off < 1e-3, f"{case}: a mean is {off:.3g} off")
        truth = x.double().var(-1, correction=0)
        off = (var.cpu().double() - truth).abs().max().item()
        yield Claim(off < 1e-3 * (1 + truth.max().item()), f"{case}: a variance is {off:.3g} off")


merge = kernel(lines=35)(moments)
unequal = kernel(lines=35, bug=True)(moments)


@kernel(lines=16)
def kahan(attempt):
    """The sum of a long row, as exact as if it had been rounded once or twice."""
    for rows, cols in [(1, 1), (3, 100), (2, 50_000)]:
        x = rows_of(rows, cols, 2)
        y = attempt.empty(rows)
        attempt(attempt.tensor(x), y, rows, cols)
        truth = x.double().sum(-1)
        yield Near(y, truth, truth.float(), f"{rows} x {cols}")


@answer
def offset(given):
    """The offset from which on the shortcut's variance is noise, to a factor of 4."""
    for sigma, bits in [(1, 24), (1 / 16, 24), (3, 11), (1, 8)]:
        wanted, got = sigma * 2 ** (bits / 2), given(sigma, bits)
        yield Claim(
            got is not ... and wanted / 4 <= got <= 4 * wanted,
            f"noise of {sigma}, {bits} bits: got {got}. How large is the square of the offset, how"
            " far apart are the numbers there, and what is to be left?",
        )


@answer
def break_shortcut(given):
    """A row whose variance by the shortcut is off by half of itself or more."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dtype == torch.float32 and given.dim() == 1,
        "wanted is a float32 tensor of one dimension",
    )
    yield Claim(2 <= given.numel() <= 64, f"{given.numel()} numbers; wanted are 2 to 64")
    largest = given.abs().max().item()
    yield Claim(largest <= 1.1e5, f"the largest is {largest:g}; wanted is 1.1e5 at most")
    kernel_ = ladder("04_variance")
    x = given.to(kernel_.target)
    mean, var = torch.empty(2, 1, device=x.device)
    kernel_.moments(x, mean, var, 1, x.numel(), 0)
    truth, got = given.double().var(correction=0).item(), var.item()
    yield Claim(truth > 0, "all numbers are the same: there is nothing to lose")
    yield Claim(
        abs(got - truth) >= truth / 2,
        f"the variance is {truth:.6g}, and the shortcut still gives {got:.6g}",
    )
