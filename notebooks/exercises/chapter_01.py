"""Judges of chapter 1: speed of light."""

import math

import torch

import lab
from lab.course.exercise import Claim, Near, Speed, answer, kernel

SIZES = (1, 3, 4, 1023, 1024, 4099)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@kernel(lines=22)
def leaky_relu(attempt):
    """x where x > 0, else slope * x, four at a time and for any n."""
    slope = 0.125  # a power of two: the product is exact

    def own(x):
        return torch.nn.functional.leaky_relu(x, slope)

    for n in SIZES:
        x, y = noise(n), attempt.empty(n)
        attempt(attempt.tensor(x), y, n, slope)
        yield Near(y, own(x.double()), own(x), f"n = {n}")

    def prepare():
        x = attempt.large(1 << 28)
        y = torch.empty_like(x)
        return lambda: attempt.launch(x, y, x.numel(), slope), 2 * x.nbytes

    yield Speed(prepare, 85)


@kernel(lines=12)
def columns(attempt):
    """y[r, c] = scale[c] * x[r, c], with few sectors for each read and write."""
    for rows, cols in [(1, 1), (3, 100), (300, 7), (64, 256)]:
        x, scale, y = noise(rows, cols), noise(cols), attempt.empty(rows, cols)
        attempt(attempt.tensor(x), attempt.tensor(scale), y, rows, cols)
        yield Near(y, x.double() * scale, x * scale, f"{rows} x {cols}")
    traffic = lab.check(attempt.launch, *attempt.last).traffic
    sectors = traffic.sectors.sum() / traffic.requests.sum()
    yield Claim(
        sectors <= 4.5,
        f"64 x 256: a warp's access touches {sectors:.1f} sectors on average; 32 neighbouring"
        " floats lie in 4",
    )

    def prepare():
        x = attempt.large(65536, 4096)
        y, scale = torch.empty_like(x), x.new_ones(4096)
        return lambda: attempt.launch(x, scale, y, *x.shape), 2 * x.nbytes

    yield Speed(prepare, 50)


@kernel(lines=20)
def transpose(attempt):
    """y[c, r] = x[r, c]; reads and writes both by neighbours."""
    for rows, cols in [(1, 1), (32, 32), (33, 31), (100, 7), (64, 129)]:
        x, y = noise(rows, cols), attempt.empty(cols, rows)
        attempt(attempt.tensor(x), y, rows, cols)
        yield Near(y, x.double().t(), x.t(), f"{rows} x {cols}")

    def prepare():
        x = attempt.large(16384, 16384)
        y = torch.empty_like(x)
        return lambda: attempt.launch(x, y, *x.shape), 2 * x.nbytes

    yield Speed(prepare, 50)


@answer
def loads_in_flight(given):
    """Loads of 16 bytes that a thread must have on their way."""
    for rate, latency, threads in [(2.1e12, 700e-9, 132 * 512), (1.0e12, 500e-9, 108 * 1024)]:
        wanted = math.ceil(rate * latency / threads / 16)
        got = given(rate, latency, threads)
        yield Claim(
            got == wanted,
            f"{rate:.3g} bytes a second, {1e9 * latency:.0f} ns, {threads} threads: got {got}. How"
            " many bytes are on their way at once, and how many of them are one thread's?",
        )


@answer
def break_boundary(given):
    """A slice of a float32 tensor that begins between two 16-byte boundaries."""
    whole = torch.zeros(64)
    part = given(whole)
    inside = part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    yield Claim(inside, "it is no view of the tensor that was given, but a copy")
    yield Claim(part.is_contiguous(), "it is not contiguous: the binding would copy it")
    yield Claim(
        part.data_ptr() % 16 != 0,
        f"it begins at element {part.storage_offset()}, on a 16-byte boundary",
    )


@kernel(lines=10, bug=True)
def nan(attempt):
    """relu that lets a NaN pass, for any n."""
    for n in SIZES:
        x = noise(n)
        x[n // 2] = torch.nan
        x[n // 3] = -0.5
        y = attempt.empty(n)
        attempt(attempt.tensor(x), y, n)
        y = y.cpu()
        wrong = (y.isnan() != x.isnan()).nonzero().flatten().tolist()
        where = wrong[0] if wrong else 0
        yield Claim(not wrong, f"n = {n}: y[{where}] is {y[where]:g}, but x there is {x[where]:g}")
        rest = ~x.isnan()
        yield Near(y[rest], torch.relu(x.double())[rest], torch.relu(x)[rest], f"n = {n}")
