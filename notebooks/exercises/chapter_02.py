"""Judges of chapter 2: fusion."""

import torch

from lab.course.exercise import Claim, Near, Speed, answer, kernel

SHAPES = ((1, 1), (4, 4), (7, 300), (1100, 3), (64, 257))


def numbers(*shape: int) -> torch.Tensor:
    """Small whole numbers, with which nothing is rounded."""
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(sum(shape))).float()


@kernel(lines=15)
def fused(attempt):
    for rows, cols in SHAPES:
        x, (scale, bias), y = numbers(rows, cols), numbers(2, cols), attempt.empty(rows, cols)
        inputs = [attempt.tensor(each) for each in (x, scale, bias)]
        attempt(*inputs, y, rows, cols)
        want = torch.relu(x * scale + bias)
        yield Near(y, want.double(), want, f"{rows} x {cols}")

    def prepare():
        x = attempt.large(1 << 16, 4096)
        scale, bias = x.new_ones(2, 4096)
        y = torch.empty_like(x)
        return lambda: attempt.launch(x, scale, bias, y, *x.shape), 2 * x.nbytes

    yield Speed(prepare, 50)


@kernel(lines=10)
def accumulate(attempt):
    for n in (1, 256, 1000):
        g, x, dx = numbers(3, n)
        y, out = torch.relu(x), attempt.tensor(dx)
        attempt(attempt.tensor(g), attempt.tensor(y), out, n)
        want = dx + g * (y > 0)
        yield Near(out, want.double(), want, f"n = {n}")


@kernel(lines=12, bug=True)
def broadcast(attempt):
    for rows, cols in SHAPES:
        x, bias, y = numbers(rows, cols), numbers(cols), attempt.empty(rows, cols)
        attempt(attempt.tensor(x), attempt.tensor(bias), y, rows, cols)
        yield Near(y, (x + bias).double(), x + bias, f"{rows} x {cols}")


@answer
def passes(given):
    """Tensors that backward reads and writes, without the gradients of scale and bias."""
    yield Claim(isinstance(given, dict), "wanted is a dict, as in the cell")
    for way, count in {"fused": 3, "op by op": 5}.items():
        got = given.get(way, ...)
        yield Claim(got == count, f"{way}: {got} is not it. Which tensors go in, which come out?")


@answer
def break_order(given):
    """x, scale and bias in float16: infinite op by op, finite when rounded once."""
    x, scale, bias = (torch.tensor(value) for value in given)
    yield Claim(
        all(value.half().isfinite() and value.half() == value for value in (x, scale, bias)),
        "wanted are three float16 numbers, none of them infinite",
    )
    apart = x.half() * scale.half() + bias.half()
    yield Claim(bool(apart.isinf()), f"op by op it is {apart.item()}, which is finite")
    once = (x.double() * scale.double() + bias.double()).half()
    yield Claim(bool(once.isfinite()), "rounded once it is infinite too")
