"""Judges of chapter 6: layer norm, forward."""

import torch

from lab.course.exercise import Claim, Speed, answer, kernel

SHAPES = ((1, 2), (3, 31), (9, 32), (2, 33), (5, 1000))


def noise(*shape: int) -> torch.Tensor:
    return 1 + 2 * torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def close(got: torch.Tensor, truth: torch.Tensor, case: str) -> Claim:
    """To 5 digits: less than a wrong formula is off, more than rounding is."""
    got, want = got.cpu().double().flatten(), truth.flatten()
    error = ((got - want).abs() / (want.abs() + 1)).nan_to_num(nan=torch.inf)
    at = int(error.argmax())
    return Claim(
        error[at].item() < 1e-5,
        f"{case}: element {at} is {got[at].item():.7g}, wanted {want[at].item():.7g}",
    )


@kernel(lines=22)
def rms(attempt):
    for rows, cols in SHAPES:
        x, weight, y = noise(rows, cols), noise(cols), attempt.empty(rows, cols)
        attempt(attempt.tensor(x), attempt.tensor(weight), y, rows, cols, 1e-6)
        truth = torch.nn.functional.rms_norm(x.double(), (cols,), weight.double(), 1e-6)
        yield close(y, truth, f"{rows} x {cols}")

    def prepare():
        x = attempt.large(1 << 16, 4096)
        weight, y = x.new_ones(4096), torch.empty_like(x)
        return lambda: attempt.launch(x, weight, y, *x.shape, 1e-6), 2 * x.nbytes

    yield Speed(prepare, 50)


@kernel(lines=25, bug=True)
def bessel(attempt):
    for rows, cols in SHAPES:
        x, y = noise(rows, cols), attempt.empty(rows, cols)
        attempt(attempt.tensor(x), y, rows, cols, 1e-5)
        yield close(y, torch.nn.functional.layer_norm(x.double(), (cols,)), f"{rows} x {cols}")


@answer
def statistics(given):
    """The first width at which 8 bytes a row are less than 1% of those of x and y in bfloat16."""
    wanted = next(n for n in range(1, 1000) if 0.01 * (2 * n + 2 * n) > 8)
    yield Claim(given == wanted, f"{given} is not it: what does a row of n numbers move?")


@answer
def break_eps(given):
    """A row on which a layer norm with eps = 0 gives a NaN."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dim() == 1 and given.is_floating_point(),
        "wanted is a tensor of one dimension",
    )
    yield Claim(given.numel() > 0 and bool(given.isfinite().all()), "wanted are finite numbers")
    x = given.double()
    y = (x - x.mean()) / x.var(correction=0).sqrt()
    yield Claim(bool(y.isnan().any()), f"the result is {y.tolist()}")
