"""Judges of chapter 9: dropout and random numbers."""

import math

import torch

import jitload
import reference
from kernels.dropout_layer_norm import dropout_layer_norm
from lab.course.exercise import Claim, Speed, answer, kernel

SHAPES = ((1, 1), (3, 31), (9, 32), (2, 33), (5, 1000))
KEYS = ((5, 0, 6554), (2**40 + 1, 3, 32768), (2**63 - 1, 2**33, 0), (7, 1, 65536))
EPS = 1e-5


def rows_of(count: int, rows: int, cols: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows + cols)
    return torch.randn(count, rows, cols, generator=generator) + 0.5


def seed_of(seed: int) -> torch.Tensor:
    return torch.tensor(seed, device=jitload.device())


def dropped_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, seed: int, offset: int, dropped: int
) -> torch.Tensor:
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, EPS)
    return y * reference.factors(x, dropped / 65536, seed, offset)


def close(got: torch.Tensor, truth: torch.Tensor, case: str) -> Claim:
    """To 4 digits of what is not below 1, for the sums differ in order."""
    got = got.cpu().double()
    error = ((got - truth).abs() / truth.abs().clamp(min=1)).nan_to_num(nan=torch.inf)
    row, c = divmod(int(error.argmax()), truth.shape[-1])
    wrong = f"{case}: element {row * truth.shape[-1] + c}, [{row}, {c}], is {got[row, c]:.7g}"
    return Claim(error.max().item() < 1e-4, f"{wrong}, wanted {truth[row, c]:.7g}")


@kernel(lines=34)
def forward(attempt):
    """By the rule of the op; also where nothing is dropped, and everything."""
    for rows, cols in SHAPES:
        x, (weight, bias, *_) = rows_of(1, rows, cols)[0], rows_of(1, 2, cols)[0]
        for seed, offset, dropped in KEYS:
            y, mean, rstd = attempt.empty(rows, cols), attempt.empty(rows), attempt.empty(rows)
            tensors = [attempt.tensor(each) for each in (x, weight, bias)]
            key = seed_of(seed), offset, dropped
            attempt(*tensors, y, mean, rstd, *key, rows, cols)
            truth = dropped_norm(x.double(), weight.double(), bias.double(), seed, offset, dropped)
            yield close(y, truth, f"{rows} x {cols}, {dropped} of 65536 dropped")

    def prepare():
        x = attempt.large(1 << 18, 1024)
        y, (weight, bias), (mean, rstd) = (
            torch.empty_like(x),
            x.new_ones(2, 1024),
            x.new_empty(2, len(x)),
        )
        arguments = x, weight, bias, y, mean, rstd, seed_of(3), 0, 6554, *x.shape
        return lambda: attempt.launch(*arguments), 2 * x.nbytes

    yield Speed(prepare, 15)


@kernel(lines=40)
def backward(attempt):
    """The gradient of x, for forward's mask."""
    for rows, cols in SHAPES[1:]:
        x, g = rows_of(2, rows, cols)
        weight = rows_of(1, 1, cols)[0, 0]
        mean = x.double().mean(-1)
        rstd = (x.double().var(-1, correction=0) + EPS).rsqrt()
        for seed, offset, dropped in KEYS:
            leaf = x.double().requires_grad_()
            y = dropped_norm(
                leaf, weight.double(), torch.zeros(cols).double(), seed, offset, dropped
            )
            (truth,) = torch.autograd.grad(y, leaf, g.double())
            dx = attempt.empty(rows, cols)
            given = (g, x, weight, mean.float(), rstd.float())
            tensors = [attempt.tensor(each) for each in given]
            attempt(*tensors, dx, seed_of(seed), offset, dropped, rows, cols)
            yield close(dx, truth, f"{rows} x {cols}, {dropped} of 65536 dropped")


@answer
def draws(given):
    """How many elements one draw must serve, so that memory and not drawing takes the time."""
    for size, bytes_per_second, draws_per_second in [(8, 4.2e12, 3.5e11), (24, 1e12, 1e11)]:
        wanted = bytes_per_second / (size * draws_per_second)
        got = given(size, bytes_per_second, draws_per_second)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{size} bytes an element; {bytes_per_second:.2g} bytes, {draws_per_second:.2g} draws a"
            f" second: got {got}. How long do an element's bytes take, and how long a draw?",
        )


@answer
def honest(given):
    """A test that tells masks of good numbers from others."""
    n = 1 << 16

    def mask(p, seed):
        return reference.factors(torch.empty(n), p, seed) != 0

    for p in (0.1, 0.25, 0.5, 0.9):
        for seed in range(6):
            got = given(mask(p, seed), p)
            yield Claim(got is not ..., "no answer yet: put it in place of ...")
            yield Claim(bool(got), f"p = {p}, seed {seed}: refused, and it is an honest mask")
    for p in (0.1, 0.5):
        some = mask(p, 1)
        late = torch.where(mask(0.5, 2), some, some.roll(33))
        for case, bad in {
            "more are dropped than p": some & mask(0.05, 3),
            "each number serves two neighbours": some[::2].repeat_interleave(2),
            "each draw serves eight elements, and the next eight too": some.view(-1, 2, 8)[:, :1]
            .expand(-1, 2, 8)
            .reshape(-1),
            "half of the elements repeat the one 33 before": late,
        }.items():
            yield Claim(not given(bad, p), f"p = {p}: let pass, but {case}")


@answer
def break_seed(given):
    """Two places of a training run whose masks are one."""
    numbers = isinstance(given, tuple) and [
        isinstance(one, tuple) and len(one) == 3 for one in given
    ]
    yield Claim(numbers == [True, True], "wanted are two tuples, (step, rank, layer) each")
    for step, rank, layer in given:
        yield Claim(
            0 <= step < 10**6 and 0 <= rank < 64 and 0 <= layer < 48,
            f"({step}, {rank}, {layer}): wanted are steps below 1000000, ranks below 64, layers"
            " below 48",
        )
    yield Claim(given[0] != given[1], "that is one place, twice")
    x = torch.ones(8, 64, device=jitload.device())
    masks, seeds = [], []
    for step, rank, layer in given:
        seeds.append(1000 * step + 10 * rank + layer)
        masks.append(dropout_layer_norm(x, x, x[0], x[0], p=0.5, seed=seeds[-1])[1])
    yield Claim(torch.equal(*masks), f"the seeds are {seeds}, and their masks differ")


@kernel(lines=24, bug=True)
def turns(attempt):
    """Forward and backward drop the same elements, of tensors of any size."""
    for n, dropped in [(100, 32768), (8192, 6554), (20000, 32768), (100003, 6554)]:
        x, g = rows_of(2, 1, n)[:, 0].abs() + 1
        y, dx = attempt.empty(n), attempt.empty(n)
        attempt(attempt.tensor(x), y, attempt.tensor(g), dx, 11, dropped, n)
        y, dx = y.cpu(), dx.cpu()
        kept, differ = y != 0, (y != 0) != (dx != 0)
        yield Claim(
            not differ.any(),
            f"n = {n}: of {int(differ.sum())} elements one of y and dx is dropped alone, the first"
            f" is element {int(differ.int().argmax())}",
        )
        scale = kept * (65536 / (65536 - dropped))
        for name, got, given in (("y", y, x), ("dx", dx, g)):
            off = (got - given * scale).abs().nan_to_num(nan=torch.inf).max().item()
            yield Claim(off < 1e-4, f"n = {n}: {name} is off by {off:.3g}")
        p = dropped / 65536
        away = abs(kept.double().mean().item() - (1 - p)) / math.sqrt(p * (1 - p) / n)
        yield Claim(away < 5, f"n = {n}: {kept.double().mean():.3f} are kept, wanted {1 - p:.3f}")
