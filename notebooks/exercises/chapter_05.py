"""Judges of chapter 5: softmax."""

import torch

from lab.course.exercise import Claim, answer, kernel
from lab.course.ladder import ladder

SHAPES = ((1, 1), (3, 31), (9, 32), (2, 33), (5, 1000))


def noise(rows: int, cols: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows + cols)
    return 10 * torch.randn(rows, cols, generator=generator)


def close(got: torch.Tensor, truth: torch.Tensor, case: str, least: float = 1e-3) -> Claim:
    """To 5 digits of what is not below `least`; beyond them every machine's exp is its own."""
    got, want = got.cpu().double().flatten(), truth.flatten()
    error = ((got - want).abs() / want.abs().clamp(min=least)).nan_to_num(nan=torch.inf)
    at = int(error.argmax())
    return Claim(
        error[at].item() < 1e-5,
        f"{case}: element {at} is {got[at].item():.7g}, wanted {want[at].item():.7g}",
    )


@kernel(lines=28)
def online(attempt):
    """Also where the largest number comes last, and all are large."""
    for rows, cols in SHAPES:
        for shift in (0, 1000):
            x, y = noise(rows, cols).sort(-1).values + shift, attempt.empty(rows, cols)
            attempt(attempt.tensor(x), y, rows, cols)
            yield close(y, x.double().softmax(-1), f"{rows} x {cols}, sorted, {shift} added")


@kernel(lines=26)
def log_softmax(attempt):
    """Also far from the largest number."""
    for rows, cols in SHAPES:
        x, y = 20 * noise(rows, cols), attempt.empty(rows, cols)
        attempt(attempt.tensor(x), y, rows, cols)
        yield close(y, x.double().log_softmax(-1), f"{rows} x {cols}", least=1)


@kernel(lines=30, bug=True)
def masked(attempt):
    """Rows whose end, beginning or larger part is masked."""
    for rows, cols in SHAPES[1:]:
        for begin, end in [(0, 0), (cols // 2, cols), (0, cols // 2), (2, cols)]:
            x, y = noise(rows, cols), attempt.empty(rows, cols)
            x[:, begin:end] = -torch.inf
            attempt(attempt.tensor(x), y, rows, cols)
            case = f"{rows} x {cols}, columns {begin} to {end} masked"
            yield close(y, x.double().softmax(-1), case)


@answer
def passes(given):
    """Time of each version, in times of a copy of x."""
    wanted = {"unshifted": 3 / 2, "shifted": 2, "online": 3 / 2, "vector": 1}
    yield Claim(isinstance(given, dict), "wanted is a dict, as in the cell")
    for version, times in wanted.items():
        got = given.get(version, ...)
        yield Claim(
            got == times,
            f"{version}: {got}. How often is x read and y written? A copy does both once",
        )


@answer
def break_unshifted(given):
    """Finite numbers, none above 0, whose softmax by the formula as it stands is a NaN."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dtype == torch.float32 and given.dim() == 1,
        "wanted is a float32 tensor of one dimension",
    )
    yield Claim(1 <= given.numel() <= 8, f"{given.numel()} numbers; wanted are 1 to 8")
    yield Claim(bool(given.isfinite().all() and (given <= 0).all()), "wanted: finite, at most 0")
    kernel_ = ladder("05_softmax")
    x = given.to(kernel_.target)
    y = torch.empty_like(x)
    kernel_.softmax(x, y, 1, x.numel(), 0)
    yield Claim(bool(y.isnan().any()), f"the result is {y.tolist()}, and that is no NaN")


@answer
def step(given):
    """The trace of the exercise `online`, lane 0: (c, what the sum should be)."""
    c, total = given
    seen = torch.tensor([1.0, 0, 2])
    yield Claim(c == 64, f"c = {c}: is the sum there other than that of e^(x - most) so far?")
    wanted = (seen - seen.max()).exp().sum().item()
    yield Claim(
        abs(total - wanted) < 0.01,
        f"{total}: wanted is the sum of e^(x - most) over 1, 0 and 2, where most is 2 now",
    )
