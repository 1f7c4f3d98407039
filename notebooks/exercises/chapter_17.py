"""Judges of chapter 17: attention in one pass, its tiles, its warpgroups, and its parts."""

import itertools
import math

import torch
from torch import Tensor

import lab
from lab.course.exercise import Claim, Near, answer, kernel


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@kernel(lines=22)
def rescale(attempt):
    """Scores that rise, that fall, that are too large for e^s, and that begin with -infinity."""
    ramp = torch.linspace(-200, 200, 50)
    cases = {
        "small scores": draw(3, 40),
        "scores of 300": 300 + draw(3, 40),
        "scores from -200 up to 200": ramp.repeat(2, 1),
        "scores from 200 down to -200": ramp.flip(0).repeat(2, 1),
        "a first score of -infinity": draw(3, 40).index_fill_(1, torch.tensor([0, 7]), -math.inf),
    }
    for case, s in cases.items():
        rows, n = s.shape
        v, y = draw(n), attempt.empty(rows)
        attempt(attempt.tensor(s), attempt.tensor(v), y, rows, n)
        truth = s.double().softmax(-1) @ v.double()
        yield Claim(bool(y.isfinite().all()), f"{case}: y is {y.tolist()}, wanted {truth.tolist()}")
        yield Near(y, truth, s.softmax(-1) @ v, case)
    given = draw(32, 24), draw(24), torch.empty(32), 32, 24
    report = lab.check(attempt.launch, *given)
    yield Claim(report.findings.empty, f"lab.check: {report.first}")
    reads = report.traffic[(report.traffic.tensor == "s") & (report.traffic.access == "read")]
    yield Claim(
        reads.requests.sum() == 24,
        f"a warp reads its 24 scores in {reads.requests.sum()} requests, wanted 24: one pass",
    )


@kernel(lines=24, bug=True)
def causal(attempt):
    """One block, several, and a last one that is not whole."""
    for tokens in (20, 64, 128, 300):
        v, y = draw(tokens), attempt.empty(tokens)
        attempt(attempt.tensor(v), y, tokens)
        wanted = v.double().cumsum(0) / torch.arange(1, tokens + 1)
        error = (y.cpu().double() - wanted).abs().nan_to_num(nan=math.inf)
        at = int((error > 1e-5).int().argmax())
        yield Claim(
            error.max().item() < 1e-5,
            f"{tokens} tokens: y[{at}] is {y[at].item():.5f}, wanted {wanted[at].item():.5f}",
        )


@answer
def tiles(given):
    """The tiles of which a causal row sees something."""
    for tokens, rows, keys in [(128, 32, 32), (256, 64, 32), (256, 32, 64), (4096, 128, 128)]:
        wanted = sum(
            row + rows > key for row in range(0, tokens, rows) for key in range(0, tokens, keys)
        )
        got = given(tokens, rows, keys)
        yield Claim(
            got is not ... and got == wanted,
            f"{tokens} tokens in tiles of {rows} x {keys}: got {got}. Which key does the last row"
            " of a tile see last?",
        )


@answer
def break_overflow(given):
    """Four scores whose e^s is too large, though their softmax is harmless."""
    yield Claim(
        isinstance(given, Tensor) and given.dtype == torch.float32 and given.shape == (4,),
        "wanted is a float32 tensor of 4 scores",
    )
    weights = given.double().softmax(-1)
    yield Claim(
        bool((weights >= 0.2).all()), f"the softmax is {weights.tolist()}, wanted are 0.2 and more"
    )
    powers = given.exp()
    yield Claim(
        bool((powers / powers.sum()).isnan().any()),
        f"e^s / sum of e^s is {(powers / powers.sum()).tolist()}: no NaN",
    )


@answer
def busy(given):
    """The part of the time in which tensor cores can work at most."""
    for cols, warpgroups, wanted in [
        (128, 1, 1024 / 1856),
        (64, 1, 512 / 1344),
        (128, 2, 1.0),
        (64, 2, 512 / 832),
        (256, 2, 1.0),
    ]:
        got = given(cols, warpgroups)
        yield Claim(
            got is not ... and math.isclose(got, wanted, rel_tol=1e-3),
            f"head size {cols}, {warpgroups} warpgroups: got {got}. A product takes 4 clocks for"
            " each of `cols`, the softmax 832. Which of the two is the limit?",
        )


@answer
def combine(given):
    """The weighted mean over all keys, from those over parts of them."""
    numbers = draw(3, 40).double()
    cases = {
        "parts of different lengths": (0, 7, 20, 40),
        "one part": (0, 40),
        "scores of 1000": (0, 20, 40),
        "a part that saw nothing": (0, 0, 15, 40),
        "nothing at all": (0, 0, 0),
    }
    for case, cuts in cases.items():
        s, v = numbers[0] * 3 + 1000 * (case == "scores of 1000"), numbers[1]
        parts = []
        for begin, end in itertools.pairwise(cuts):
            its = s[begin:end]
            most = its.max() if end > begin else torch.tensor(-math.inf)
            powers = (its - most).exp()
            mean = (powers * v[begin:end]).sum() / powers.sum() if end > begin else powers.sum()
            parts.append((most.item(), powers.sum().item(), mean.item()))
        whole = cuts[-1]
        wanted = (s[:whole].softmax(-1) @ v[:whole]).item()
        try:
            got = given(parts)
        except (ArithmeticError, ValueError) as error:
            got = error
        yield Claim(
            isinstance(got, float | int | Tensor) and math.isclose(got, wanted, abs_tol=1e-12),
            f"{case}: got {got}, wanted {wanted:.6g}. What is each part's sum of powers, measured"
            " from the largest score of all?",
        )


@answer
def step(given):
    """The trace of the kernel that forgets: (row, key)."""
    yield Claim(
        tuple(given) == (2, 8),
        f"{given}: where does a tile first bring a score that is larger than those before it?",
    )
