"""Judges of chapter 7: layer norm, backward."""

import torch

from lab.course.exercise import Claim, Judgement, Near, answer, kernel


def gradient_of_x(attempt) -> Judgement:
    """Against autograd in float64, to 5 digits, with weights that are not 1."""
    for rows, cols in [(1, 2), (3, 31), (9, 32), (2, 33), (5, 1000)]:
        generator = torch.Generator().manual_seed(cols)
        g, x = torch.randn(2, rows, cols, generator=generator)
        weight = torch.randn(cols, generator=generator)
        mean = x.mean(-1)
        rstd = (x.var(-1, correction=0) + 1e-5).rsqrt()
        dx = attempt.empty(rows, cols)
        inputs = [attempt.tensor(each) for each in (g, x, weight, mean, rstd)]
        attempt(*inputs, dx, rows, cols)
        exact = x.double().requires_grad_()
        y = torch.nn.functional.layer_norm(exact, (cols,), weight.double())
        (truth,) = torch.autograd.grad(y, exact, g.double())
        error = ((dx.cpu() - truth).abs() / (truth.abs() + 1)).nan_to_num(nan=torch.inf)
        yield Claim(error.max().item() < 1e-4, f"{rows} x {cols}: off by {error.max().item():.2g}")


dx = kernel(lines=30)(gradient_of_x)
weight = kernel(lines=30, bug=True)(gradient_of_x)


@kernel(lines=20)
def columns(attempt):
    """Whole numbers, so that no order rounds."""
    for rows, cols in [(1, 1), (7, 33), (8, 32), (100, 5), (1000, 70)]:
        generator = torch.Generator().manual_seed(rows)
        g = torch.randint(-9, 10, (rows, cols), generator=generator).float()
        dbias = attempt.empty(cols)
        attempt(attempt.tensor(g), dbias, rows, cols)
        yield Near(dbias, g.double().sum(0), g.sum(0), f"{rows} x {cols}")


@answer
def passes(given):
    """Bytes of bfloat16 for each element: of matrices, for what is per row or column is little."""
    wanted = {"dx": 6, "dweight and dbias apart": 4}
    yield Claim(isinstance(given, dict), "wanted is a dict, as in the cell")
    for what, count in wanted.items():
        got = given.get(what, ...)
        yield Claim(got == count, f"{what}: {got} is not it. Which matrices are read and written?")


@answer
def break_sum(given):
    """A gradient that arrives, not 0, and of which dx is 0 for weights of 1."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dim() == 1 and given.numel() > 2,
        "wanted is a tensor of one dimension, of three numbers at least",
    )
    yield Claim(bool((given != 0).any()), "it is 0")
    x = torch.randn(given.numel(), generator=torch.Generator().manual_seed(0)).double()
    x.requires_grad_()
    y = torch.nn.functional.layer_norm(x, x.shape)
    (dx,) = torch.autograd.grad(y, x, given.double())
    largest = dx.abs().max().item()
    yield Claim(largest < 1e-9, f"dx is not 0: its largest element is {largest:.3g}")
