"""Judges of chapter 14: tiles."""

import math

import torch
from torch import Tensor

import lab
from lab.course.exercise import Attempt, Claim, Judgement, answer, kernel

AWKWARD = ((1, 1, 1), (16, 16, 16), (17, 15, 33), (3, 40, 5), (64, 48, 100))
MULTIPLES = ((32, 32, 32), (64, 96, 128))


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def right(attempt: Attempt, shapes: tuple[tuple[int, int, int], ...]) -> Judgement:
    """`launch(x, w, y, rows, units, depth)` for these shapes."""
    for rows, units, depth in shapes:
        x, w, y = noise(rows, depth), noise(units, depth), attempt.empty(rows, units)
        attempt(attempt.tensor(x), attempt.tensor(w), y, rows, units, depth)
        truth = x.double() @ w.double().T
        error = (y.cpu().double() - truth).abs().nan_to_num(nan=math.inf)
        at = divmod(int(error.argmax()), units)
        yield Claim(
            error[at].item() < 1e-5 * depth,
            f"{rows} x {units} x {depth}: y{list(at)} is {y[at].item():.6g}, wanted"
            f" {truth[at].item():.6g}",
        )


def unharmed(attempt: Attempt, side: int, **options: bool) -> tuple[lab.Report, Claim]:
    """What the checker has seen of a product of square matrices, and that nothing is wrong."""
    x, w, y = noise(side, side), noise(side, side), torch.empty(side, side)
    report = lab.check(attempt.launch, x, w, y, side, side, side, **options)
    return report, Claim(report.findings.empty, f"lab.check: {report.first}")


@kernel(lines=26)
def tile(attempt):
    """Each element is read from memory once by a block, and serves 16 products there."""
    yield from right(attempt, AWKWARD)
    report, nothing_found = unharmed(attempt, 64)
    yield nothing_found
    traffic = report.traffic
    read = traffic[(traffic.memory == "global") & (traffic.access == "read")].bytes_moved.sum()
    least = 2 * 4 * 64**3 // 16
    yield Claim(
        read <= least,
        f"64 x 64 x 64: right, but warps read {read} bytes of x and w; with tiles of 16 x 16 it is"
        f" {least}",
    )


@kernel(lines=28)
def column(attempt):
    """Nine elements of shared memory are read for eight products."""
    yield from right(attempt, MULTIPLES)
    report, nothing_found = unharmed(attempt, 64)
    yield nothing_found
    traffic = report.traffic
    passes = traffic[(traffic.memory == "shared") & (traffic.access == "read")].passes.sum()
    products = 64**3 / 32
    yield Claim(
        passes <= 9 / 8 * products,
        f"64 x 64 x 64: right, but for a product of all lanes of a warp shared memory is read"
        f" {passes / products:.2f} times; wanted is 9/8",
    )


@kernel(lines=27, bug=True)
def ahead(attempt):
    """No two accesses of one place without an order; and right, of course."""
    yield unharmed(attempt, 96, traffic=False)[1]
    yield from right(attempt, MULTIPLES)


@answer
def intensity(given):
    """The most operations for each byte that a product can do."""
    for rows, units, depth, itemsize, wanted in [
        (4096, 4096, 4096, 4, 4096 / 6),
        (4096, 4096, 4096, 2, 4096 / 3),
        (1, 4096, 4096, 2, 2 * 4096**2 / (2 * (4096**2 + 2 * 4096))),
        (512, 14336, 4096, 2, 2 * 512 * 14336 / (2 * (512 + 14336 + 512 * 14336 / 4096))),
    ]:
        got = given(rows, units, depth, itemsize)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{rows} x {units} x {depth}, {itemsize} bytes an element: got {got}. How many"
            " operations are there, and how many bytes have the three matrices?",
        )


@answer
def side(given):
    """The smallest tiles, of a power of two, whose reading is not the limit."""
    for peak, bandwidth, itemsize, wanted in [
        (67e12, 4.3e12, 4, 64),
        (64e12, 4e12, 4, 64),
        (989e12, 4.3e12, 2, 512),
        (989e12, 12e12, 2, 256),
        (1e12, 4e12, 1, 1),
    ]:
        got = given(peak, bandwidth, itemsize)
        yield Claim(
            got is not ... and got == wanted,
            f"{peak:.3g} operations and {bandwidth:.3g} bytes a second, {itemsize} bytes an"
            f" element: got {got}. What does a block read for side x side x depth products?",
        )


@answer
def share(given):
    """The part of a GPU that has work, on average, until the last tile is done."""
    for rows, units, tile_side, processors, wanted in [
        (1024, 1024, 128, 132, 64 / 132),
        (1536, 1536, 128, 132, 144 / 264),
        (4096, 4096, 128, 132, 1024 / 1056),
        (100, 100, 128, 132, 1 / 132),
        (1500, 1500, 64, 132, 576 / 660),
    ]:
        got = given(rows, units, tile_side, processors)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{rows} x {units} in tiles of {tile_side} x {tile_side}, {processors}"
            f" multiprocessors: got {got}. How many tiles has the multiprocessor with the most?",
        )


@answer
def break_sum(given):
    """A row of x and one of w, of positive numbers, whose product loses 1000 ULP."""
    yield Claim(isinstance(given, tuple) and len(given) == 2, "wanted is (row of x, row of w)")
    yield Claim(... not in given, "no answer yet: put two lists in place of ...")
    x, w = (torch.tensor(each, dtype=torch.float32) for each in given)
    fits = x.dim() == 1 and x.shape == w.shape and len(x) <= 4096
    yield Claim(fits, f"{list(x.shape)} and {list(w.shape)}; wanted are at most 4096 numbers each")
    yield Claim(bool(((x > 0) & (w > 0) & (x * w).isfinite()).all()), "not all are above 0")
    depth = -(-len(x) // 32) * 32
    rows = torch.zeros(2, 128, depth, device=lab.ladder("14_tiles").target)
    rows[:, :, : len(x)] = torch.stack([x, w])[:, None].to(rows.device)
    y = torch.empty(128, 128, device=rows.device)
    lab.ladder("14_tiles").registers(*rows, y, 128, 128, depth)
    truth = (x.double() * w.double()).sum()
    lost = (truth - y[0, 0].cpu()) / lab.ulp(truth, torch.float32)
    yield Claim(lost.item() >= 1000, f"the sum is {lost.item():.0f} ULP too small; wanted are 1000")


@answer
def step(given):
    """The trace with a depth of 12: (first, k)."""
    yield Claim(
        tuple(given) == (8, 4),
        f"{given}: the sum of thread (0, 0) grows by 1 with each k of its own row, 12 times",
    )
