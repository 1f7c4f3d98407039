"""Judges of chapter 8: rms_norm and the residual."""

import math

import torch

import jitload
from kernels.rms_norm import rms_norm
from lab.course.exercise import Claim, Near, Speed, answer, kernel

SHAPES = ((1, 1), (3, 31), (9, 32), (2, 33), (5, 1000))
EPS = 1e-6


def noise(count: int, rows: int, cols: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows + cols)
    return torch.randn(count, rows, cols, generator=generator)


def norm(s: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(s, s.shape[-1:], weight, EPS)


def close(got: torch.Tensor, truth: torch.Tensor, what: str) -> Claim:
    """To 5 digits, of the largest number of the row where that is more: sums differ in order."""
    got = got.cpu().double()
    error = ((got - truth).abs() / truth.abs().amax(-1, keepdim=True).clamp(min=1e-30)).nan_to_num(
        nan=torch.inf
    )
    row, c = divmod(int(error.argmax()), truth.shape[-1])
    return Claim(
        error.max().item() < 1e-5,
        f"{what}[{row}, {c}] is {got[row, c].item():.7g}, wanted {truth[row, c].item():.7g}",
    )


@kernel(lines=25)
def add_norm(attempt):
    """The norm of the sum and the sum, also where they take the places of x and residual."""
    for rows, cols in SHAPES:
        x, residual, (weight, *_) = *noise(2, rows, cols), noise(1, 1, cols)[0]
        s = x + residual
        truth = norm(s.double(), weight.double())
        for in_place in (False, True):
            arguments = [attempt.tensor(each) for each in (x, residual, weight)]
            y, total = arguments[:2] if in_place else attempt.empty(2, rows, cols)
            attempt(*arguments, y, total, rows, cols, EPS)
            case = f"{rows} x {cols}{', in place' if in_place else ''}"
            yield Near(total, x.double() + residual.double(), s, f"{case}: s")
            yield close(y, truth, f"{case}: y")

    def prepare():
        x, residual = (attempt.large(1 << 18, 1024) for _ in range(2))
        weight, y, s = x.new_ones(1024), torch.empty_like(x), torch.empty_like(x)
        return lambda: attempt.launch(x, residual, weight, y, s, *x.shape, EPS), 4 * x.nbytes

    yield Speed(prepare, 50)


@kernel(lines=25)
def backward(attempt):
    """The gradient of x and of the residual."""
    for rows, cols in SHAPES[1:]:
        s, g, gs = noise(3, rows, cols).double()
        weight = noise(1, 1, cols)[0, 0].double()
        s = s.requires_grad_()
        (through_y,) = torch.autograd.grad(norm(s, weight), s, g)
        s = s.detach()
        rstd = (s.square().mean(-1) + EPS).rsqrt()
        dx = attempt.empty(rows, cols)
        tensors = [attempt.tensor(each.float()) for each in (g, gs, s, weight, rstd)]
        attempt(*tensors, dx, rows, cols)
        yield close(dx, through_y + gs, f"{rows} x {cols}: dx")


@answer
def seconds(given):
    """Seconds that a training step saves by fusing the additions with the norms."""
    for layers, elements, itemsize, rate in [(64, 1 << 25, 2, 4.2e12), (7, 1000, 4, 1e9)]:
        wanted = layers * 3 * elements * itemsize / rate
        got = given(layers, elements, itemsize, rate)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{layers} norms of {elements} elements of {itemsize} bytes at {rate:.2g} bytes a"
            f" second: got {got}. Which tensors are moved no more, forward and backward?",
        )


@answer
def break_square(given):
    """Finite numbers, none 0, whose rms_norm is 0."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dtype == torch.float32 and given.dim() == 1,
        "wanted is a float32 tensor of one dimension",
    )
    yield Claim(1 <= given.numel() <= 64, f"{given.numel()} numbers; wanted are 1 to 64")
    yield Claim(bool((given.isfinite() & (given != 0)).all()), "wanted: finite, and none 0")
    x = given.to(jitload.device())
    y = rms_norm(x[None], torch.ones_like(x), eps=EPS)[0]
    yield Claim(bool((y == 0).all()), f"the result is {y.tolist()}, and that is not 0 everywhere")


@kernel(lines=45, bug=True)
def stored(attempt):
    """Forward and backward of float16, quiet rows and loud ones."""
    for rows, cols, scale in [(3, 31, 1), (2, 100, 1e-2), (4, 64, 4e4), (5, 1000, 2e4)]:
        x, g = noise(2, rows, cols)
        x, g = (scale * x.clamp(-1.5, 1.5)).half(), (4096 * g).half()  # g: a scaled loss's
        y, dx = attempt.empty(2, rows, cols, dtype=torch.float16)
        room = attempt.empty(rows)
        attempt(attempt.tensor(x), attempt.tensor(g), y, dx, room, rows, cols)
        s = x.double().requires_grad_()
        truth = norm(s, torch.ones(cols).double())
        (gradient,) = torch.autograd.grad(truth, s, g.double())
        case = f"{rows} x {cols}, of size {scale:g}"
        yield Near(y, truth.detach(), truth.detach().half(), f"{case}: y")
        yield Near(dx, gradient, gradient.half(), f"{case}: dx")
