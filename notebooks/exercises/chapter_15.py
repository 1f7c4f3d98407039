"""Judges of chapter 15: tensor cores."""

import math

import torch
from torch import Tensor

import lab
from lab.course.exercise import Attempt, Claim, Judgement, answer, kernel


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def right(attempt: Attempt, x: Tensor, w: Tensor, *more: int) -> Judgement:
    """`launch(x, w, y, ...)`, whose sums are float."""
    y = attempt.empty(len(x), len(w))
    attempt(attempt.tensor(x), attempt.tensor(w), y, *more)
    truth = x.double() @ w.double().T
    error = (y.cpu().double() - truth).abs().nan_to_num(nan=math.inf)
    at = divmod(int(error.argmax()), len(w))
    yield Claim(
        error[at].item() < 1e-5 * x.shape[1],
        f"depth {x.shape[1]}: y{list(at)} is {y[at].item():.6g}, wanted {truth[at].item():.6g}",
    )


@kernel(lines=28)
def fragment(attempt):
    """Every element at its place; with a single 1 in x and w each, at first."""
    for row, k in [(0, 0), (8, 1), (3, 8), (15, 15)]:
        x, w = torch.zeros(2, 16, 16).bfloat16()
        x[row, k] = w[row % 8, k] = 1
        for claim in right(attempt, x, w[:8], 16):
            yield Claim(claim.holds, f"x[{row}, {k}] is 1, all else 0; {claim.why}")
    for depth in (16, 80):
        yield from right(attempt, noise(16, depth), noise(8, depth), depth)


@kernel(lines=41)
def swizzle(attempt):
    """No bank conflict."""
    x, w = noise(64, 64), noise(64, 64) / 2
    yield from right(attempt, x, w)
    report = lab.check(attempt.launch, x, w, torch.empty(64, 64))
    yield Claim(report.findings.empty, f"lab.check: {report.first}")
    shared = report.traffic[report.traffic.memory == "shared"]
    yield Claim(
        shared.bank_conflicts.sum() == 0,
        f"right, but {shared.bank_conflicts.sum()} of {shared.passes.sum()} passes through shared"
        " memory are for bank conflicts; wanted are none",
    )


@kernel(lines=42, bug=True)
def wait(attempt):
    """Nobody reads what may still be on its way."""
    x, w = noise(16, 128), noise(8, 128)
    report = lab.check(attempt.launch, x, w, torch.empty(16, 8), 128, traffic=False)
    yield Claim(report.findings.empty, f"lab.check: {report.first}")
    for depth in (16, 32, 48, 128):
        yield from right(attempt, noise(16, depth), noise(8, depth), depth)


@answer
def holder(given):
    """The lane that holds a sum, and as which of its four numbers."""
    for row, column in [(0, 0), (0, 1), (1, 0), (8, 0), (5, 6), (15, 7)]:
        wanted = row % 8 * 4 + column // 2, row // 8 * 2 + column % 2
        got = given(row, column)
        yield Claim(got == wanted, f"row {row}, column {column}: got {got}. Look at the picture")


@answer
def feed(given):
    """Operations for each byte of shared memory, of a warp that has m x n fragments of sums."""
    for m, n in [(1, 1), (4, 4), (2, 8), (4, 8)]:
        wanted = 4096 * m * n / (512 * m + 256 * n)
        got = given(m, n)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{m} x {n} fragments: got {got}. How many bytes have a fragment of x and one of w,"
            " and how often is each read?",
        )


@answer
def stages(given):
    """The stages with which tensor cores never wait, if memory is fast enough."""
    for latency, multiplying, wanted in [
        (600, 300, 3),
        (600, 200, 4),
        (700, 300, 4),
        (100, 400, 2),
    ]:
        got = given(latency, multiplying)
        yield Claim(
            got is not ... and got == wanted,
            f"latency {latency} ns, {multiplying} ns for a step: got {got}. How many steps are"
            " multiplied while a copy is on its way?",
        )


@answer
def break_align(given):
    """16 elements of x and w whose products' sum tensor cores take for 0."""
    yield Claim(isinstance(given, tuple) and len(given) == 2, "wanted is (row of x, row of w)")
    yield Claim(... not in given, "no answer yet: put two lists in place of ...")
    x, w = (torch.tensor(each, dtype=torch.float64) for each in given)
    fits = x.shape == w.shape == (16,) and torch.equal(torch.stack([x, w]).bfloat16().double(),
                                                       torch.stack([x, w]))  # fmt: skip
    yield Claim(fits, "wanted are 16 numbers each, all of them exact in bfloat16")
    right_sum = (x * w).sum().item()
    yield Claim(right_sum >= 10, f"the sum is {right_sum:g}; wanted is 10 or more")
    ways = lab.ladder("15_tensor_cores")
    rows = torch.zeros(2, 128, 64, dtype=torch.bfloat16)
    rows[:, :, :16] = torch.stack([x, w])[:, None]
    y = torch.empty(128, 128, device=ways.target)
    ways.direct(*rows.to(y.device), y, 128, 128, 64)
    got = y[0, 0].item()
    yield Claim(got == 0, f"the sum is {right_sum:g}, and tensor cores say {got:g}")


@answer
def step(given):
    """The trace of three products: (k, what is lost)."""
    yield Claim(
        tuple(given) == (16, 14),
        f"{given}: `sums[0]` of lane 0 should be 16, 30 and 46 after the three products",
    )
